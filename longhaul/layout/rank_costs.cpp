#include "longhaul/layout/rank_costs.h"

namespace longhaul::layout {

int64_t most_bytes(const RankCosts& costs) {
  const StateBytes& state = costs.state;
  return state.weights + state.gradients + state.masters + state.moments +
         costs.activations.in_flight.total() + costs.activations.work +
         costs.whole.weights + costs.whole.gradients;
}

LayoutCosts::LayoutCosts(const RunConfig& config, const ModelDescription& model,
                         const LayoutDescription& layout,
                         const std::function<bool(const std::string&)>& frozen,
                         std::string_view device)
    : shape_(layout.shape) {
  const Passes passes =
      passes_of(config, model, layout, device.empty() ? config.run.device : device);
  const PipelinePlan plan = layout.training_plan();
  for (int pp = 0; pp < shape_.pp; ++pp) {
    for (int tp = 0; tp < shape_.tp; ++tp) {
      const MeshIndex at = {.pp = pp, .tp = tp};
      const int rank = rank_at(shape_, at);
      const auto placed = layout.parameters(model, rank, frozen);
      const auto buckets = plan_buckets(placed, layout.sharding(rank));
      RankCosts costs;
      for (const PlacedParameter& p : placed) {
        costs.parameters += p.slice.num_elements();
      }
      costs.state = state_bytes(buckets, config.precision);
      const RankUnits units =
          layout.rank_units(model, rank, {buckets.begin(), buckets.end()});
      const UnitPlan uses = plan_units(plan, pp, units);
      costs.whole.weights = gathered_peak(uses, units);
      costs.whole.gradients = whole_gradients(buckets, config.precision);
      costs.activations = activation_bytes(passes, model, layout, plan, at);
      costs.traffic =
          step_traffic(passes, config, model, layout, plan, uses, buckets, at);
      costs_.push_back(std::move(costs));
    }
  }
}

const RankCosts& LayoutCosts::of(int rank) const {
  const MeshIndex at = mesh_index_of(shape_, rank);
  return costs_.at(static_cast<size_t>(at.pp) * static_cast<size_t>(shape_.tp) +
                   static_cast<size_t>(at.tp));
}

}  // namespace longhaul::layout
