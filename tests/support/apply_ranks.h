#pragma once

#include <vector>

#include "longhaul/layout/shard_plan.h"
#include "longhaul/tensor/parameter.h"

namespace longhaul::parallel {

/// Cuts every parameter to what rank `index` of the tp group holds, before storage is
/// bound. Returns the slices in the parameters' order.
inline std::vector<layout::ParameterShard> apply_shard_plan(
    const std::vector<tensor::ParameterPtr>& parameters, const layout::ShardPlan& plan,
    int64_t index) {
  std::vector<layout::ParameterShard> shards;
  for (const tensor::ParameterPtr& p : parameters) {
    shards.push_back(layout::plan_parameter(plan, {p->slice(), p->split()}, index));
  }
  // The slices are set in a second loop. So a plan that does not fit changes no
  // parameter.
  for (size_t i = 0; i < parameters.size(); ++i) {
    parameters[i]->set_slice(shards[i].slice);
  }
  return shards;
}

}  // namespace longhaul::parallel
