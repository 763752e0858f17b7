#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "longhaul/imports/foreign_state.h"

namespace longhaul::imports {

/// A dict that holds the state of a torch optimizer, or one data-parallel rank's shard of
/// the state.
struct OptimizerShard {
  ForeignState state;
  PickleTree::Ref root = 0;
};

/// Optimizer state by the names of parameters. If there are several tensor-parallel ranks
/// or stages, the state is that of one rank of one stage.
struct NamedOptimizer {
  NamedTensors exp_avg;
  NamedTensors exp_avg_sq;
  NamedTensors masters;  ///< empty where none were saved
  std::optional<int64_t> updates;
};

/// Reads ZeRO-1 state (base_state, shape_info, sharded_master_weights) of every
/// data-parallel rank, or the state of a plain optimizer (state). Optimizers number
/// parameters. The numbers become names by the order of `parameters`, as the model's file
/// lists them, and by the parameter groups: one group, or parameters with decay before
/// those without. Every shape must then fit. Throws InputError that says what does not
/// fit or is missing.
NamedOptimizer read_numbered_optimizer(ForeignFiles& files,
                                       std::vector<OptimizerShard> shards,
                                       const NamedTensors& parameters);

}  // namespace longhaul::imports
