#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "longhaul/checkpoint/read/node_reader.h"
#include "longhaul/checkpoint/read/weights_source.h"
#include "longhaul/train/start/training_state.h"

namespace longhaul::train {

// Fills the weights and the optimizer state that this rank owns from files or from
// memory, as session::StateReader reads them. DataParallel::share_weights has to follow
// on all ranks.

/// Fills the masters from a Hugging Face directory or a checkpoint, and then the weights
/// from the masters, so that the first update starts from exactly the values of the
/// files. Collective over `node`.
checkpoint::ReadReport load_weights(ModelState state,
                                    const checkpoint::WeightsSource& source,
                                    comm::Communicator& node);

/// Fills masters and moments from a checkpoint of any layout. Messages call the
/// checkpoint `where`. A parameter that had no update, by the optimizer's counts, has no
/// moments in the checkpoint: its moments begin with zeros. `staging_bytes` is used as
/// StateReader does. Collective over `node`.
checkpoint::ReadReport restore_state(ModelState state,
                                     const checkpoint::StoredTensors& stored,
                                     const std::string& where, comm::Communicator& node,
                                     std::optional<int64_t> staging_bytes = {});

}  // namespace longhaul::train
