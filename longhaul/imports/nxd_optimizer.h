#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "longhaul/imports/nxd_layout.h"
#include "longhaul/imports/state.h"

namespace longhaul::imports {

/// Optimizer state of one tensor-parallel rank of one stage, put together from its
/// data-parallel shards, by the names of the rank's parameters.
struct NxdOptimizerRank {
  NamedTensors exp_avg;
  NamedTensors exp_avg_sq;
  NamedTensors masters;  ///< empty where none were saved
  std::optional<int64_t> updates;
};

/// ZeRO-1 state (base_state, shape_info, sharded_master_weights) or that of a plain
/// optimizer (state). Optimizers number parameters; the numbers are turned into names by
/// the order of `parameters` (as the model's file lists them) and the parameter groups:
/// one group, or those that decay before those that do not. Every shape must then fit.
/// InputError says what does not, or what is missing.
NxdOptimizerRank read_nxd_optimizer(ForeignFiles& files, const NxdFiles& paths,
                                    int64_t tp, int64_t pp,
                                    const NamedTensors& parameters);

}  // namespace longhaul::imports
