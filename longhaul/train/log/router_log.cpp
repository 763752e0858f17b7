#include "longhaul/train/log/router_log.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

namespace longhaul::train {
namespace {

/// With fewer choices for each expert, chance alone leaves experts without a token.
constexpr int64_t kLeastChoices = 8;
/// A layer has recovered when its share of experts in use is so many times warn_below. So
/// a layer whose share stays near warn_below does not warn again and again.
constexpr double kRecovered = 1.1;

double share_in_use(const session::ExpertLoads& loads, size_t layer) {
  return loads.effective(layer) / static_cast<double>(loads.counts[layer].size());
}

/// Returns the layers with experts that have got a token.
std::vector<size_t> layers_of(const session::ExpertLoads& loads) {
  std::vector<size_t> layers;
  for (size_t layer = 0; layer < loads.counts.size(); ++layer) {
    const auto any = [](int64_t count) { return count > 0; };
    if (std::ranges::any_of(loads.counts[layer], any)) layers.push_back(layer);
  }
  return layers;
}

double rounded(double value) { return std::round(value * 1e4) / 1e4; }

std::string describe(const run::RouterCollapsedEvent& event, double warn_below) {
  return fmt::format(
      "ROUTER COLLAPSED: layer {} had {:.2f} of {} experts in effective use at step {}, "
      "below experts.warn_below = {:g}; expert {} got {:.2f} times an even share. Set "
      "experts.balance, raise experts.balance_weight, or lower optimizer.lr.",
      event.layer, event.effective, event.experts, event.step, warn_below, event.expert,
      event.busiest);
}

}  // namespace

void set_figures(const session::ExpertLoads& loads, run::StepRecord& record) {
  const std::vector<size_t> layers = layers_of(loads);
  if (layers.empty()) return;
  record.router_entropy = 0.0;
  for (const size_t layer : layers) {
    // fmin and fmax pass over the NaN of a record without these numbers.
    record.expert_use = std::fmin(record.expert_use, share_in_use(loads, layer));
    record.expert_busiest = std::fmax(record.expert_busiest, loads.busiest(layer));
    record.router_entropy += loads.entropy[layer] / static_cast<double>(layers.size());
  }
}

run::ExpertLoadsEvent expert_loads(const session::ExpertLoads& loads, int64_t step) {
  run::ExpertLoadsEvent event;
  event.step = step;
  for (const size_t layer : layers_of(loads)) {
    event.layers.push_back({.layer = static_cast<int64_t>(layer),
                            .effective = rounded(loads.effective(layer)),
                            .entropy = rounded(loads.entropy[layer]),
                            .counts = loads.counts[layer]});
  }
  return event;
}

std::vector<run::RouterCollapsedEvent> CollapseRule::look(
    const session::ExpertLoads& loads, int64_t step) {
  std::vector<run::RouterCollapsedEvent> found;
  for (const size_t layer : layers_of(loads)) {
    const std::vector<int64_t>& counts = loads.counts[layer];
    const auto at = static_cast<int64_t>(layer);
    const int64_t choices = std::accumulate(counts.begin(), counts.end(), int64_t{0});
    if (choices < kLeastChoices * std::ssize(counts)) continue;
    const double use = share_in_use(loads, layer);
    if (use > kRecovered * warn_below_) collapsed_.erase(at);
    if (use >= warn_below_ || !collapsed_.insert(at).second) continue;
    found.push_back({.step = step,
                     .layer = at,
                     .effective = rounded(loads.effective(layer)),
                     .experts = std::ssize(counts),
                     .expert = std::ranges::max_element(counts) - counts.begin(),
                     .busiest = rounded(loads.busiest(layer))});
  }
  return found;
}

void RouterLog::tell(const session::ExpertLoads& loads, run::StepRecord& record) {
  set_figures(loads, record);
  if (loads.empty() || !record.applied) return;
  const int64_t step = record.step;
  if (every_ > 0 && (step == 1 || step == last_step_ || step % every_ == 0)) {
    run_.record_loads(expert_loads(loads, step));
  }
  for (const run::RouterCollapsedEvent& event : rule_.look(loads, step)) {
    run_.log().warning(describe(event, warn_below_));
    run_.event(event);
  }
}

}  // namespace longhaul::train
