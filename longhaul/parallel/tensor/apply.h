#pragma once

#include <string>
#include <vector>

#include "longhaul/format/shard_plan.h"
#include "longhaul/tensor/parameter.h"

namespace longhaul::parallel {

/// What a rank of the tp group holds of a model's parameters.
struct AppliedShards {
  std::vector<ParameterShard> shards;  ///< one per parameter, in their order
  std::vector<std::string> notes;      ///< uneven_splits of them, for the log
};

/// Cuts every parameter to what rank `index` of the tp group holds, before storage is
/// bound. Knows no model: the plan says it all. ConfigError where a tensor does not
/// split.
AppliedShards apply_shard_plan(const std::vector<ParameterPtr>& parameters,
                               const ShardPlan& plan, int64_t index);

}  // namespace longhaul::parallel
