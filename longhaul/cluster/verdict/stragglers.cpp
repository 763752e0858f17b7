#include "longhaul/cluster/verdict/stragglers.h"

#include <fmt/format.h>

#include <algorithm>

namespace longhaul::cluster {
namespace {

constexpr double kLookEverySeconds = 2.0;
constexpr int kLooks = 3;
/// Steps before a rank is judged: the first steps are slow everywhere.
constexpr int64_t kSteps = 8;
/// A smaller difference is noise of the clock and the scheduler.
constexpr double kLeastSeconds = 0.005;

/// Returns the pipeline stage, whose ranks have the same work; -1 if it is not known.
int stage_of(const ObservedRank& rank) { return rank.place ? rank.place->pp : -1; }

/// Returns the lower median, so that of two ranks the slower is compared with the faster.
double lower_middle(std::vector<double>& seconds) {
  const auto middle =
      seconds.begin() + static_cast<std::ptrdiff_t>((seconds.size() - 1) / 2);
  std::ranges::nth_element(seconds, middle);
  return *middle;
}

}  // namespace

void Stragglers::restart() { known_.clear(); }

std::vector<Straggler> Stragglers::look(const RankList& ranks, double now) {
  std::vector<Straggler> found;
  if (now - looked_ < kLookEverySeconds) return found;
  looked_ = now;
  std::map<int, std::vector<double>> stages;
  for (const ObservedRank* rank : ranks) {
    if (rank->steps_done < kSteps) return found;
    stages[stage_of(*rank)].push_back(rank->busy_seconds);
  }
  std::map<int, double> middles;
  for (auto& [stage, seconds] : stages) {
    if (seconds.size() > 1) middles[stage] = lower_middle(seconds);
  }
  for (const ObservedRank* one : ranks) {
    const ObservedRank& rank = *one;
    const auto place = middles.find(stage_of(rank));
    if (place == middles.end()) continue;
    const double middle = place->second;
    const double ratio = rank.busy_seconds / std::max(middle, 1e-9);
    Known& known = known_[rank.rank];
    if (ratio < ratio_ || rank.busy_seconds - middle < kLeastSeconds) {
      known = {};
      continue;
    }
    if (++known.looks < kLooks || ratio < 2.0 * known.told) continue;
    known.told = ratio;
    found.push_back({rank.rank, rank.node, rank.busy_seconds, ratio,
                     fmt::format("{} takes {:.3f} s for a step, {:.2f} times as long as "
                                 "the other ranks of its stage ({:.3f} s)",
                                 rank.name(), rank.busy_seconds, ratio, middle)});
  }
  return found;
}

}  // namespace longhaul::cluster
