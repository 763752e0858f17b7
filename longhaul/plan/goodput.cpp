#include "longhaul/plan/goodput.h"

#include <cmath>

namespace longhaul::plan {

double expected_goodput(const FailureCosts& costs, double interval_s) {
  const double mean = costs.between_s;
  const double lost_s = costs.restart_s + costs.write_s;
  // The time until an interval and its save have passed without a failure. The restart
  // may fail as well.
  const double wall =
      mean * std::exp(lost_s / mean) * std::expm1((interval_s + costs.stall_s) / mean);
  return interval_s / wall;
}

double best_interval(const FailureCosts& costs) {
  const double mean = costs.between_s;
  const double stall = costs.stall_s;
  if (stall >= 2.0 * mean) return mean;
  const double ratio = stall / (2.0 * mean);
  return std::sqrt(2.0 * stall * mean) * (1.0 + std::sqrt(ratio) / 3.0 + ratio / 9.0) -
         stall;
}

}  // namespace longhaul::plan
