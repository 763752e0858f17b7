#pragma once

#include <vector>

#include "longhaul/format/shard_plan.h"
#include "longhaul/tensor/parameter.h"

namespace longhaul::parallel {

/// Cuts every parameter to what rank `index` of the tp group holds, before storage is
/// bound; what that is, in their order. ConfigError where a tensor does not split.
std::vector<ParameterShard> apply_shard_plan(const std::vector<ParameterPtr>& parameters,
                                             const ShardPlan& plan, int64_t index);

}  // namespace longhaul::parallel
