#pragma once

#include <vector>

#include "longhaul/format/shard_plan.h"
#include "longhaul/tensor/parameter.h"

namespace longhaul::parallel {

/// Cuts every parameter to what rank `index` of the tp group holds, before storage is
/// bound. Returns the slices in the parameters' order. Throws ConfigError where a tensor
/// does not split.
inline std::vector<format::ParameterShard> apply_shard_plan(
    const std::vector<tensor::ParameterPtr>& parameters, const format::ShardPlan& plan,
    int64_t index) {
  std::vector<format::ParameterShard> shards;
  for (const tensor::ParameterPtr& p : parameters) {
    shards.push_back(format::plan_parameter(plan, {p->slice(), p->split()}, index));
  }
  // After the loop, so that a plan that does not fit changes no parameter.
  for (size_t i = 0; i < parameters.size(); ++i) {
    parameters[i]->set_slice(shards[i].slice);
  }
  return shards;
}

}  // namespace longhaul::parallel
