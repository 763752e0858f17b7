#include "longhaul/parallel/tensor/apply.h"

namespace longhaul::parallel {

AppliedShards apply_shard_plan(const std::vector<ParameterPtr>& parameters,
                               const ShardPlan& plan, int64_t index) {
  AppliedShards applied;
  std::vector<TensorSlice> wholes;
  for (const ParameterPtr& parameter : parameters) {
    wholes.push_back(parameter->slice());
    applied.shards.push_back(plan_parameter(plan, wholes.back(), index));
  }
  for (size_t i = 0; i < parameters.size(); ++i) {
    parameters[i]->set_slice(applied.shards[i].slice);
  }
  applied.notes = uneven_splits(plan, wholes);
  return applied;
}

}  // namespace longhaul::parallel
