#include "longhaul/plan/search.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

namespace longhaul::plan {
namespace {

using config::BrokenRule;

size_t index_of(TimeCause cause) { return static_cast<size_t>(cause); }

/// Returns the seconds of a counted step by the causes that bounds have.
CauseSeconds causes_of(const StepEstimate& step) {
  CauseSeconds seconds{};
  for (const TimePart& part : step.parts) {
    size_t cause = index_of(TimeCause::Computing);
    for (size_t i = 1; i < kTimeCauses; ++i) {
      if (part.name == cause_name(static_cast<TimeCause>(i))) cause = i;
    }
    seconds[cause] += part.seconds;
  }
  return seconds;
}

CauseBytes causes_of(const DeviceMemory& memory) {
  const layout::RankCosts& costs = memory.costs;
  const auto bytes = [](int64_t count) { return static_cast<double>(count); };
  return {bytes(costs.state.weights),
          bytes(costs.state.gradients),
          bytes(costs.state.masters),
          bytes(costs.state.moments),
          bytes(costs.whole.weights + costs.whole.gradients),
          bytes(costs.activations.in_flight.total() + costs.activations.work),
          bytes(memory.tokens) + memory.context};
}

Losers too_large(const LayoutSettings& settings, const CauseBytes& bytes, double lacks) {
  Losers one;
  one.reason = Losers::Reason::Memory;
  one.layouts = 1;
  one.example = settings;
  one.bytes_of =
      static_cast<MemoryCause>(std::ranges::max_element(bytes) - bytes.begin());
  one.lacks = lacks;
  return one;
}

Losers too_slow(const LayoutSettings& settings, const CauseSeconds& seconds,
                const CauseSeconds& best, double slower) {
  Losers one;
  one.reason = Losers::Reason::Time;
  one.layouts = 1;
  one.example = settings;
  one.slower = slower;
  double most = 0.0;
  for (size_t i = 0; i < kTimeCauses; ++i) {
    if (seconds[i] - best[i] <= most) continue;
    most = seconds[i] - best[i];
    one.seconds_of = static_cast<TimeCause>(i);
  }
  return one;
}

Losers of_rule(const LayoutSettings& settings, const BrokenRule& rule) {
  Losers one;
  one.layouts = 1;
  one.example = settings;
  one.rule = rule;
  return one;
}

/// Collects losers by reason. The example is the one that loses by least.
class Groups {
 public:
  void add(const Losers& one) {
    const bool rule = one.reason == Losers::Reason::Rule;
    const auto [found, fresh] = groups_.try_emplace(
        std::tuple(one.reason, rule ? one.rule.rule : config::LayoutRule{}, one.bytes_of,
                   one.seconds_of, one.between),
        one);
    if (fresh) return;
    Losers& group = found->second;
    const int64_t layouts = group.layouts + 1;
    if (one.lacks < group.lacks || one.slower < group.slower) group = one;
    group.layouts = layouts;
  }
  std::vector<Losers> take() {
    std::vector<Losers> all;
    for (auto& [key, group] : groups_) all.push_back(group);
    std::ranges::stable_sort(all, std::greater<>(), &Losers::layouts);
    return all;
  }

 private:
  std::map<std::tuple<Losers::Reason, config::LayoutRule, MemoryCause, TimeCause, bool>,
           Losers>
      groups_;
};

/// Goes through the layouts of one run.
class Search {
 public:
  Search(const SearchedRun& run, size_t top)
      : run_(run), top_(top), config_(run.config), limits_(run.model), bounds_(run) {}

  SearchResult run() {
    std::vector<BoundedLayout> layouts;
    const auto collect = [&](const LayoutSettings& settings, const LayoutBound& bound) {
      if (bound.all_bytes() > run_.room) return;
      layouts.push_back({settings, bound.all_seconds()});
    };
    bounds_.go_through(collect, [](const auto&, const auto&) {});
    const auto seconds = [&](const LayoutSettings& settings) { return time(settings); };
    for (const BoundedLayout& one : find_best(std::move(layouts), top_, seconds)) {
      result_.best.push_back(counted_.at(one.settings));
    }
    if (result_.best.empty()) {
      find_nearest();
    } else {
      best_seconds_ = causes_of(result_.best.front().step);
    }
    tell_losers();
    return std::move(result_);
  }

 private:
  /// Returns the seconds of a step if the layout fits.
  std::optional<double> time(const LayoutSettings& settings) {
    const LayoutCount count = count_layout(run_, limits_, settings, config_);
    if (count.broken) {
      broken_.emplace(settings, *count.broken);
      return {};
    }
    counted_.emplace(settings, count.layout);
    if (count.layout.fullest.all() > run_.room) return {};
    return count.layout.step.seconds;
  }

  void find_nearest() {
    std::vector<BoundedLayout> layouts;
    const auto collect = [&](const LayoutSettings& settings, const LayoutBound& bound) {
      layouts.push_back({settings, bound.all_bytes()});
    };
    bounds_.go_through(collect, [](const auto&, const auto&) {});
    const auto bytes = [&](const LayoutSettings& settings) -> std::optional<double> {
      const LayoutCount count = count_layout(run_, limits_, settings, config_);
      if (count.broken) return {};
      counted_.emplace(settings, count.layout);
      return count.layout.fullest.all();
    };
    for (const BoundedLayout& one : find_best(std::move(layouts), 1, bytes)) {
      result_.nearest = counted_.at(one.settings);
    }
  }

  Losers slower(const LayoutSettings& settings, const CauseSeconds& seconds,
                const LayoutBound& bound, double all) const {
    const double best = result_.best.front().step.seconds;
    Losers one = too_slow(settings, seconds, best_seconds_, all / best - 1.0);
    const size_t exchange = index_of(one.seconds_of) - index_of(TimeCause::Tensor);
    one.between = exchange < bound.between.size() && bound.between[exchange];
    return one;
  }

  /// Returns why a counted layout loses; nothing for one of the best.
  std::optional<Losers> reason_of(const CountedLayout& one,
                                  const LayoutBound& bound) const {
    const auto is_it = [&](const CountedLayout& best) {
      return best.settings == one.settings;
    };
    if (std::ranges::any_of(result_.best, is_it)) return {};
    const double lacks = one.fullest.all() - run_.room;
    if (lacks > 0.0) return too_large(one.settings, causes_of(one.fullest), lacks);
    return slower(one.settings, causes_of(one.step), bound, one.step.seconds);
  }

  /// Gives every layout that is not among the best one reason.
  void tell_losers() {
    Groups groups;
    const auto lose = [&](Losers one, bool counted) {
      one.counted = counted;
      groups.add(one);
      if (counted) result_.counted.push_back(one);
    };
    const auto refuse = [&](const LayoutSettings& settings, const BrokenRule& rule) {
      ++result_.layouts;
      lose(of_rule(settings, rule), false);
    };
    const auto visit = [&](const LayoutSettings& settings, const LayoutBound& bound) {
      ++result_.layouts;
      if (const auto found = counted_.find(settings); found != counted_.end()) {
        if (const auto reason = reason_of(found->second, bound)) lose(*reason, true);
      } else if (const auto rule = broken_.find(settings); rule != broken_.end()) {
        lose(of_rule(settings, rule->second), true);
      } else if (const double lacks = bound.all_bytes() - run_.room; lacks > 0.0) {
        lose(too_large(settings, bound.bytes, lacks), false);
      } else {
        lose(slower(settings, bound.seconds, bound, bound.all_seconds()), false);
      }
    };
    bounds_.go_through(visit, refuse);
    result_.losers = groups.take();
  }

  const SearchedRun& run_;
  size_t top_;
  RunConfig config_;
  layout::ModelLimits limits_;
  LayoutBounds bounds_;
  std::map<LayoutSettings, CountedLayout> counted_;
  std::map<LayoutSettings, BrokenRule> broken_;
  SearchResult result_;
  CauseSeconds best_seconds_{};  ///< of the best layout
};

}  // namespace

std::vector<BoundedLayout> find_best(
    std::vector<BoundedLayout> layouts, size_t top,
    const std::function<std::optional<double>(const LayoutSettings&)>& score) {
  const auto later = [](const BoundedLayout& a, const BoundedLayout& b) {
    return std::tie(a.bound, a.settings) > std::tie(b.bound, b.settings);
  };
  std::ranges::make_heap(layouts, later);
  std::vector<BoundedLayout> best;
  while (!layouts.empty()) {
    std::ranges::pop_heap(layouts, later);
    const BoundedLayout next = layouts.back();
    layouts.pop_back();
    if (best.size() == top && next.bound >= best.back().bound) break;
    const auto own = score(next.settings);
    if (!own || (best.size() == top && *own >= best.back().bound)) continue;
    const BoundedLayout scored = {next.settings, *own};
    if (best.size() == top) best.pop_back();
    best.insert(std::ranges::upper_bound(best, scored.bound, {}, &BoundedLayout::bound),
                scored);
  }
  return best;
}

double room_of_rank(const Cluster& cluster) {
  const NodeProfile& node = cluster.profile.node;
  if (cluster.profile.device != "cpu") return node.device_bytes;
  const double left = node.host_bytes - host_memory(cluster, 0.0).all();
  return left / static_cast<double>(std::min(cluster.ranks, cluster.machine.node_ranks));
}

LayoutCount count_layout(const SearchedRun& run, const layout::ModelLimits& limits,
                         const LayoutSettings& settings, RunConfig& config) {
  set_layout(config, settings, run.ranks);
  const auto placement =
      layout::Placement::even(static_cast<int>(run.machine.node_ranks));
  const auto broken = layout::broken_on_ranks(config, limits, run.ranks, placement);
  LayoutCount count;
  count.layout.settings = settings;
  if (!broken.empty()) {
    count.broken = broken.front();
    return count;
  }
  const layout::LayoutDescription layout =
      layout::place_layout(config, limits, run.ranks, placement);
  const auto costs =
      layout::stage_costs(config, run.model, layout, run.frozen, run.profile.device);
  const auto memory = device_memory(config, run.model, layout, costs, run.profile);
  count.layout.step = estimate_step({config, run.model, layout, costs}, run.machine);
  count.layout.fullest = fullest(memory);
  return count;
}

SearchResult search_layouts(const SearchedRun& run, size_t top) {
  return Search(run, top).run();
}

}  // namespace longhaul::plan
