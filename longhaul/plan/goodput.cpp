#include "longhaul/plan/goodput.h"

#include <algorithm>
#include <cmath>

namespace longhaul::plan {
namespace {

/// The nodes that are away, where the run has `spares` spares. `load` is how many would
/// be away on average if the run never waited.
class NodesAway {
 public:
  explicit NodesAway(double load) : load_(load) {}

  /// Returns what waits_for_nodes returns.
  double waits() const { return load_ * none_left_ / static_cast<double>(spares_ + 1); }
  void add_spare() {
    ++spares_;
    none_left_ = load_ * none_left_ / (static_cast<double>(spares_) + load_ * none_left_);
  }
  int64_t spares() const { return spares_; }

 private:
  double load_;
  int64_t spares_ = 0;
  double none_left_ = 1.0;  ///< share of the time in which all spares are in use
};

}  // namespace

double expected_goodput(const FailureCosts& costs, double interval_s) {
  const double mean = costs.between_s;
  const double save_s = interval_s + costs.stall_s;
  // The time from one written save to the next, without a failure.
  const double apart_s = save_s + std::max(0.0, costs.write_s - interval_s);
  // The time that has to pass without a failure after one: the restart may fail as well.
  const double again_s = costs.restart_s + save_s + costs.write_s;
  return interval_s / (mean * std::exp(again_s / mean) * -std::expm1(-apart_s / mean));
}

double best_interval(const FailureCosts& costs) {
  const double mean = costs.between_s;
  const double stall = costs.stall_s;
  if (stall >= 2.0 * mean) return mean;
  const double ratio = stall / (2.0 * mean);
  const double daly =
      std::sqrt(2.0 * stall * mean) * (1.0 + std::sqrt(ratio) / 3.0 + ratio / 9.0) -
      stall;
  return std::max(daly, std::min(costs.write_s, mean));
}

double waits_for_nodes(double between_s, double replace_s, int64_t spares) {
  NodesAway away(replace_s / between_s);
  while (away.spares() < spares) away.add_spare();
  return away.waits();
}

int64_t best_spares(double between_s, double replace_s, int64_t nodes) {
  NodesAway away(replace_s / between_s);
  int64_t best = 0;
  double most = 0.0;
  for (; away.spares() <= nodes; away.add_spare()) {
    const double share =
        static_cast<double>(nodes) / static_cast<double>(nodes + away.spares());
    if (share <= most) break;  // More spares do not make up for what they cost.
    const double trained = share / (1.0 + away.waits());
    if (trained <= most) continue;
    most = trained;
    best = away.spares();
  }
  return best;
}

}  // namespace longhaul::plan
