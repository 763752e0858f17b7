#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "longhaul/imports/foreign_state.h"

namespace longhaul::imports {

/// A dict that holds the state of a torch optimizer, or one data-parallel rank's shard of
/// it.
struct OptimizerShard {
  ForeignState state;
  PickleTree::Ref root = 0;
};

/// Optimizer state by the names of parameters; of one tensor-parallel rank of one stage
/// where there are several.
struct NamedOptimizer {
  NamedTensors exp_avg;
  NamedTensors exp_avg_sq;
  NamedTensors masters;  ///< empty where none were saved
  std::optional<int64_t> updates;
};

/// ZeRO-1 state (base_state, shape_info, sharded_master_weights) of every data-parallel
/// rank, or that of a plain optimizer (state). Optimizers number parameters; the numbers
/// are turned into names by the order of `parameters` (as the model's file lists them)
/// and the parameter groups: one group, or those that decay before those that do not.
/// Every shape must then fit. InputError says what does not, or what is missing.
NamedOptimizer read_numbered_optimizer(ForeignFiles& files,
                                       std::vector<OptimizerShard> shards,
                                       const NamedTensors& parameters);

}  // namespace longhaul::imports
