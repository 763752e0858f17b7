#include "longhaul/layout/rank_costs.h"

#include <algorithm>

namespace longhaul::layout {

int64_t most_bytes(const RankCosts& costs) {
  const StateBytes& state = costs.state;
  return state.weights + state.gradients + state.masters + state.moments +
         costs.activations.in_flight.total() + costs.activations.tokens +
         costs.activations.work + costs.whole.weights + costs.whole.gradients;
}

namespace {

/// Counts the ranks of a layout one by one.
class RankCounter {
 public:
  RankCounter(const RunConfig& config, const ModelDescription& model,
              const LayoutDescription& layout,
              const std::function<bool(const std::string&)>& frozen,
              std::string_view device)
      : config_(config),
        model_(model),
        layout_(layout),
        frozen_(frozen),
        passes_(passes_of(config, model, layout,
                          device.empty() ? config.run.device : device)),
        plan_(layout.training_plan()) {}

  RankCosts count(const MeshIndex& at) const {
    const int rank = rank_at(layout_.shape, at);
    const auto placed = layout_.parameters(model_, rank, frozen_);
    const auto buckets = plan_buckets(placed, layout_.sharding(rank));
    RankCosts costs;
    for (const PlacedParameter& p : placed) costs.parameters += p.slice.num_elements();
    costs.state = state_bytes(buckets, config_.precision, model_.has_base);
    // If every bucket stays allocated, gathering and releasing units changes no cost.
    const bool stay = std::ranges::all_of(buckets, [](const BucketPlan& bucket) {
      return bucket.weights_stay && bucket.grads_stay;
    });
    UnitPlan uses;
    if (!stay) {
      const RankUnits units =
          layout_.rank_units(model_, rank, {buckets.begin(), buckets.end()});
      uses = plan_units(plan_, at.pp, units);
      costs.whole.weights = gathered_peak(uses, units);
      costs.whole.gradients = whole_gradients(buckets, config_.precision);
    }
    costs.activations = activation_bytes(passes_, model_, layout_, plan_, at);
    costs.traffic =
        step_traffic(passes_, config_, model_, layout_, plan_, uses, buckets, at);
    return costs;
  }

 private:
  const RunConfig& config_;
  const ModelDescription& model_;
  const LayoutDescription& layout_;
  const std::function<bool(const std::string&)>& frozen_;
  Passes passes_;
  PipelinePlan plan_;
};

}  // namespace

LayoutCosts::LayoutCosts(const RunConfig& config, const ModelDescription& model,
                         const LayoutDescription& layout,
                         const std::function<bool(const std::string&)>& frozen,
                         std::string_view device)
    : shape_(layout.shape) {
  const RankCounter counter(config, model, layout, frozen, device);
  for (int pp = 0; pp < shape_.pp; ++pp) {
    for (int tp = 0; tp < shape_.tp; ++tp) {
      costs_.push_back(counter.count({.pp = pp, .tp = tp}));
    }
  }
}

std::vector<RankCosts> stage_costs(const RunConfig& config, const ModelDescription& model,
                                   const LayoutDescription& layout,
                                   const std::function<bool(const std::string&)>& frozen,
                                   std::string_view device) {
  const RankCounter counter(config, model, layout, frozen, device);
  std::vector<RankCosts> costs;
  for (int pp = 0; pp < layout.shape.pp; ++pp) costs.push_back(counter.count({.pp = pp}));
  return costs;
}

const RankCosts& LayoutCosts::of(int rank) const {
  const MeshIndex at = mesh_index_of(shape_, rank);
  return costs_.at(static_cast<size_t>(at.pp) * static_cast<size_t>(shape_.tp) +
                   static_cast<size_t>(at.tp));
}

}  // namespace longhaul::layout
