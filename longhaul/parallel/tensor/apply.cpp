#include "longhaul/parallel/tensor/apply.h"

namespace longhaul::parallel {

std::vector<ParameterShard> apply_shard_plan(const std::vector<ParameterPtr>& parameters,
                                             const ShardPlan& plan, int64_t index) {
  std::vector<ParameterShard> shards;
  for (const ParameterPtr& p : parameters) {
    shards.push_back(plan_parameter(plan, {p->slice(), p->split()}, index));
  }
  // Only now: a plan that does not fit leaves all as they were.
  for (size_t i = 0; i < parameters.size(); ++i) {
    parameters[i]->set_slice(shards[i].slice);
  }
  return shards;
}

}  // namespace longhaul::parallel
