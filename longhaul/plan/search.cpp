#include "longhaul/plan/search.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <deque>
#include <map>
#include <tuple>
#include <utility>

#include "longhaul/system/cpus.h"
#include "longhaul/system/run_on_threads.h"

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
          bytes(costs.activations.tokens) + memory.context};
}

Losers too_large(const LayoutSettings& settings, const CauseBytes& bytes, double lacks) {
  const auto most = std::ranges::max_element(bytes) - bytes.begin();
  return {.reason = Losers::Reason::Memory,
          .example = settings,
          .bytes_of = static_cast<MemoryCause>(most),
          .lacks = lacks};
}

Losers too_slow(const LayoutSettings& settings, const CauseSeconds& seconds,
                const CauseSeconds& best, double slower) {
  Losers one = {.reason = Losers::Reason::Time, .example = settings, .slower = slower};
  double most = 0.0;
  for (size_t i = 0; i < kTimeCauses; ++i) {
    if (seconds[i] - best[i] <= most) continue;
    most = seconds[i] - best[i];
    one.seconds_of = static_cast<TimeCause>(i);
  }
  return one;
}

/// Collects losers by reason. The example is the one that loses by least.
class Groups {
 public:
  void add(const Losers& more) {
    const bool rule = more.reason == Losers::Reason::Rule;
    const auto [found, fresh] = groups_.try_emplace(
        std::tuple(more.reason, rule ? more.rule.rule : config::LayoutRule{},
                   more.bytes_of, more.seconds_of, more.between),
        more);
    if (fresh) return;
    Losers& group = found->second;
    const int64_t layouts = group.layouts + more.layouts;
    if (more.lacks < group.lacks || more.slower < group.slower) group = more;
    group.layouts = layouts;
  }
  void add(const Groups& more) {
    for (const auto& [key, group] : more.groups_) add(group);
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

/// A layout that may fit, with the seconds that its step takes at least. There may be
/// millions.
struct Candidate : BoundedLayout {
  Candidate(const LayoutSettings& of, const LayoutBound& from)
      : BoundedLayout{of, from.all_seconds()}, between(from.between) {
    for (size_t i = 0; i < kTimeCauses; ++i) {
      seconds[i] = static_cast<float>(from.seconds[i]);
    }
  }
  std::array<float, kTimeCauses> seconds{};  ///< exact enough to find the largest cause
  std::array<bool, 3> between;               ///< see LayoutBound
};

/// The layouts of a mesh, in the order of LayoutBounds.
struct LookedAt {
  Groups losers;  ///< those that break a rule or lack memory
  std::deque<Candidate> others;
};

/// Goes through the layouts of one run.
class Search {
 public:
  Search(const SearchedRun& run, size_t top)
      : run_(run),
        top_(top),
        config_(run.config),
        limits_(run.model),
        meshes_(meshes_of(run.ranks)) {}

  SearchResult run() {
    look();
    std::vector<const BoundedLayout*> layouts;
    for (const LookedAt& mesh : looked_at_) {
      for (const Candidate& one : mesh.others) layouts.push_back(&one);
    }
    const auto seconds = [&](const LayoutSettings& settings) { return time(settings); };
    for (const BoundedLayout& one : find_best(std::move(layouts), top_, seconds)) {
      result_.best.push_back(counted_.at(one.settings));
    }
    if (result_.best.empty()) {
      find_nearest();
      look();
    } else {
      best_seconds_ = causes_of(result_.best.front().step);
    }
    tell_losers();
    return std::move(result_);
  }

 private:
  /// Bounds all layouts, and gives those that break a rule or lack memory their reason if
  /// they were not counted.
  void look() {
    looked_at_.assign(meshes_.size(), {});
    std::atomic<size_t> next = 0;
    const int threads = std::min(system::usable_cpus(), static_cast<int>(meshes_.size()));
    system::run_on_threads(threads, [&](int) {
      LayoutBounds bounds(run_);
      for (size_t i = next++; i < meshes_.size(); i = next++) {
        LookedAt& mesh = looked_at_[i];
        const auto visit = [&](const LayoutSettings& settings, const LayoutBound& bound) {
          const double lacks = bound.all_bytes() - run_.room;
          if (bound.broken) {
            mesh.losers.add({.example = settings, .rule = *bound.broken});
          } else if (lacks > 0.0 && !counted_.contains(settings)) {
            mesh.losers.add(too_large(settings, bound.bytes, lacks));
          } else {
            mesh.others.emplace_back(settings, bound);
          }
        };
        bounds.go_through(meshes_[i], visit);
      }
    });
  }

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
    std::deque<BoundedLayout> layouts;
    const auto collect = [&](const LayoutSettings& settings, const LayoutBound& bound) {
      if (!bound.broken) layouts.push_back({settings, bound.all_bytes()});
    };
    LayoutBounds bounds(run_);
    for (const LayoutSettings& mesh : meshes_) bounds.go_through(mesh, collect);
    const auto bytes = [&](const LayoutSettings& settings) -> std::optional<double> {
      const LayoutCount count = count_layout(run_, limits_, settings, config_);
      if (count.broken) return {};
      counted_.emplace(settings, count.layout);
      return count.layout.fullest.all();
    };
    for (const BoundedLayout& one : find_best(pointers_to(layouts), 1, bytes)) {
      result_.nearest = counted_.at(one.settings);
    }
  }

  Losers slower(const Candidate& one, const CauseSeconds& seconds, double all) const {
    const double best = result_.best.front().step.seconds;
    Losers loser = too_slow(one.settings, seconds, best_seconds_, all / best - 1.0);
    const size_t exchange = index_of(loser.seconds_of) - index_of(TimeCause::Tensor);
    loser.between = exchange < one.between.size() && one.between[exchange];
    return loser;
  }

  /// Returns why a counted layout loses; nothing for one of the best.
  std::optional<Losers> reason_of(const CountedLayout& counted,
                                  const Candidate& one) const {
    const auto is_it = [&](const CountedLayout& best) {
      return best.settings == one.settings;
    };
    if (std::ranges::any_of(result_.best, is_it)) return {};
    const double lacks = counted.fullest.all() - run_.room;
    if (lacks > 0.0) return too_large(one.settings, causes_of(counted.fullest), lacks);
    return slower(one, causes_of(counted.step), counted.step.seconds);
  }

  /// Gives every layout that is not among the best one reason.
  void tell_losers() {
    Groups groups;
    const auto lose = [&](Losers one) {
      one.counted = true;
      groups.add(one);
      result_.counted.push_back(one);
    };
    for (const LookedAt& mesh : looked_at_) {
      groups.add(mesh.losers);
      for (const Candidate& one : mesh.others) {
        if (const auto found = counted_.find(one.settings); found != counted_.end()) {
          if (const auto reason = reason_of(found->second, one)) lose(*reason);
        } else if (const auto rule = broken_.find(one.settings); rule != broken_.end()) {
          lose({.example = one.settings, .rule = rule->second});
        } else {
          CauseSeconds seconds{};
          std::ranges::copy(one.seconds, seconds.begin());
          groups.add(slower(one, seconds, one.bound));
        }
      }
    }
    result_.losers = groups.take();
    result_.layouts = std::ssize(result_.best);
    for (const Losers& group : result_.losers) result_.layouts += group.layouts;
  }

  const SearchedRun& run_;
  size_t top_;
  RunConfig config_;
  layout::ModelLimits limits_;
  std::vector<LayoutSettings> meshes_;
  std::vector<LookedAt> looked_at_;  ///< by mesh
  std::map<LayoutSettings, CountedLayout> counted_;
  std::map<LayoutSettings, BrokenRule> broken_;
  SearchResult result_;
  CauseSeconds best_seconds_{};  ///< of the best layout
};

}  // namespace

std::vector<BoundedLayout> find_best(
    std::vector<const BoundedLayout*> layouts, size_t top,
    const std::function<std::optional<double>(const LayoutSettings&)>& score) {
  const auto later = [](const BoundedLayout* a, const BoundedLayout* b) {
    return std::tie(a->bound, a->settings) > std::tie(b->bound, b->settings);
  };
  std::ranges::make_heap(layouts, later);
  std::vector<BoundedLayout> best;
  while (!layouts.empty()) {
    std::ranges::pop_heap(layouts, later);
    const BoundedLayout& next = *layouts.back();
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
