#pragma once

#include <cstdint>

#include "longhaul/optim/optimizer.h"
#include "longhaul/tensor/flat_buffers.h"

namespace longhaul::train {

/// The weights and the optimizer state of this rank.
struct ModelState {
  tensor::FlatBuffers& flat;
  optim::Optimizer& optimizer;
};

/// Fills what this rank owns with random first values, which depend on the seed and on no
/// layout. DataParallel::share_weights has to follow on all ranks.
void initialise_weights(ModelState state, uint64_t seed);

}  // namespace longhaul::train
