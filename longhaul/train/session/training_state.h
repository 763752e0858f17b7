#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "longhaul/checkpoint/read/node_reader.h"
#include "longhaul/checkpoint/read/weights_source.h"
#include "longhaul/checkpoint/state_tensor.h"
#include "longhaul/optim/optimizer.h"
#include "longhaul/tensor/flat_pieces.h"

namespace longhaul::train {

/// Weights and optimizer state of this rank, and how they come and go.
struct ModelState {
  FlatBuffers& flat;
  optim::Optimizer& optimizer;
};

// The three ways to get weights fill what this rank owns, and DataParallel::share_weights
// has to follow on all ranks.

/// Random first values from the seed, the same for every layout.
void initialise_weights(ModelState state, uint64_t seed);

/// First weights from outside: masters first, so that the first update starts from
/// exactly these values.
void load_weights(ModelState state, const FlatReader& read);

/// The same from an HF directory or a checkpoint. The ranks of a machine read together
/// (checkpoint/read/node_reader.h), whose errors this throws, the same on all of them. On
/// another device than a CPU at most 256 MiB of host memory stand in between. Collective
/// over `node`. Weights that are NaN or infinite are an InputError
/// (checkpoint/finite_values.h), here and wherever weights are read, the same on all
/// ranks of `node`.
checkpoint::ReadReport load_weights(ModelState state,
                                    const checkpoint::WeightsSource& source,
                                    comm::Communicator& node);

/// Into the weights themselves, where there is no optimizer.
checkpoint::ReadReport load_weights(FlatBuffers& flat,
                                    const checkpoint::WeightsSource& source,
                                    comm::Communicator& node);

/// Masters and moments from a checkpoint of any layout, in the same way; messages call it
/// `where`. What had no update by the optimizer's counts has no moments there: it begins
/// with zeros. `staging_bytes` is the host memory in between; absent: none on a CPU, 256
/// MiB elsewhere. Collective over `node`.
checkpoint::ReadReport restore_state(ModelState state,
                                     const checkpoint::StoredTensors& stored,
                                     const std::string& where, comm::Communicator& node,
                                     std::optional<int64_t> staging_bytes = {});

/// This rank's share of masters and moments for a checkpoint. On a CPU the bytes are the
/// live tensors, which must not change until the save has ended; else copies, which
/// `storage` keeps and which are waited for (StateCapture does not).
std::vector<checkpoint::StateTensor> capture_state(const ModelState& state,
                                                   std::vector<at::Tensor>& storage);

}  // namespace longhaul::train
