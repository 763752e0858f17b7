#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "longhaul/checkpoint/read/node_reader.h"
#include "longhaul/checkpoint/read/weights_source.h"
#include "longhaul/train/session/training_state.h"

namespace longhaul::train {

// Fills the weights and the optimizer state that this rank owns from files or from
// memory. DataParallel::share_weights has to follow on all ranks. The ranks of a machine
// read together (checkpoint/read/node_reader.h); every error is the same on all ranks of
// `node`. On another device than a CPU at most 256 MiB of host memory stand between the
// files and the device. Weights that are NaN or infinite are an InputError
// (checkpoint/finite_values.h).

/// Fills the masters from a Hugging Face directory or a checkpoint, and then the weights
/// from the masters, so that the first update starts from exactly the values of the
/// files. Collective over `node`.
checkpoint::ReadReport load_weights(ModelState state,
                                    const checkpoint::WeightsSource& source,
                                    comm::Communicator& node);

/// Fills the weights themselves, for a session without an optimizer. Collective over
/// `node`.
checkpoint::ReadReport load_weights(tensor::FlatBuffers& flat,
                                    const checkpoint::WeightsSource& source,
                                    comm::Communicator& node);

/// Fills masters and moments from a checkpoint of any layout. Messages call the
/// checkpoint `where`. A parameter that had no update, by the optimizer's counts, has no
/// moments in the checkpoint: its moments begin with zeros. `staging_bytes` is the size
/// of the host memory between the files and the state; absent: none on a CPU, 256 MiB
/// elsewhere. Collective over `node`.
checkpoint::ReadReport restore_state(ModelState state,
                                     const checkpoint::StoredTensors& stored,
                                     const std::string& where, comm::Communicator& node,
                                     std::optional<int64_t> staging_bytes = {});

}  // namespace longhaul::train
