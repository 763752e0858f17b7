#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "longhaul/plan/bounds.h"
#include "longhaul/plan/device_memory.h"
#include "longhaul/plan/run_outlook.h"
#include "longhaul/plan/step_estimate.h"

namespace longhaul::plan {

/// A layout whose memory and time are counted as `plan` counts those of one layout.
struct CountedLayout {
  LayoutSettings settings;
  StepEstimate step;
  DeviceMemory fullest;  ///< of the stage that holds most
};

/// A layout and a number that the layout's own number is not below.
struct BoundedLayout {
  LayoutSettings settings;
  double bound = 0.0;
};

/// Returns pointers to the layouts of a range.
std::vector<const BoundedLayout*> pointers_to(const auto& layouts) {
  std::vector<const BoundedLayout*> pointers;
  for (const BoundedLayout& one : layouts) pointers.push_back(&one);
  return pointers;
}

/// Returns the `top` layouts with the lowest scores, the lowest first; fewer where fewer
/// have one. `score` is asked in the order of the bounds, until no layout that is left
/// can be among the best.
std::vector<BoundedLayout> find_best(
    std::vector<const BoundedLayout*> layouts, size_t top,
    const std::function<std::optional<double>(const LayoutSettings&)>& score);

/// Layouts that lose for one reason, and one of them.
struct Losers {
  enum class Reason { Rule, Memory, Time };
  Reason reason = Reason::Rule;
  int64_t layouts = 1;
  LayoutSettings example{};
  bool counted = false;  ///< the example's numbers are exact; else they are bounds
  config::BrokenRule rule{};
  MemoryCause bytes_of = MemoryCause::Weights;  ///< what takes most of the memory
  double lacks = 0.0;                           ///< bytes
  TimeCause seconds_of = TimeCause::Computing;  ///< what costs more than in the best
  bool between = false;                         ///< it is an exchange between nodes
  double slower = 0.0;                          ///< share of the best one's time
};

struct SearchResult {
  int64_t layouts = 0;              ///< that were looked at
  std::vector<CountedLayout> best;  ///< those that fit, the fastest first
  /// The layouts that were counted and are not among the best, each with its reason.
  /// Memory and time are exact.
  std::vector<Losers> counted;
  std::vector<Losers> losers;  ///< all layouts that are not among the best, by reason
  /// If no layout fits: the one that lacks least.
  std::optional<CountedLayout> nearest;
};

/// Returns the bytes that one rank may hold. On CPUs the ranks of a node share what saves
/// and peer memory leave of it.
double room_of_rank(const Cluster& cluster);

/// Counts a layout, or tells the rule that it breaks.
struct LayoutCount {
  std::optional<config::BrokenRule> broken;
  CountedLayout layout;
};
/// `config` is that of the run; the settings are written into it.
LayoutCount count_layout(const SearchedRun& run, const layout::ModelLimits& limits,
                         const LayoutSettings& settings, RunConfig& config);

/// Finds the layouts of a run with the shortest steps among those that fit the memory.
/// Each CPU that this process may use has a thread that bounds layouts. The result does
/// not depend on the number of threads.
SearchResult search_layouts(const SearchedRun& run, size_t top);

}  // namespace longhaul::plan
