#include "longhaul/plan/goodput.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

namespace longhaul::plan {
namespace {

/// Returns the share of its time that a run keeps which trains for `work_s` seconds,
/// played failure by failure. A save counts when it is written, beside the training that
/// goes on; what was trained since the newest such save is lost.
double played_goodput(const FailureCosts& costs, double interval_s, double work_s,
                      std::mt19937_64& random) {
  std::exponential_distribution<double> between(1.0 / costs.between_s);
  double now = 0.0;
  double kept = 0.0;  // training in the newest written save
  double fails = between(random);
  while (kept < work_s) {
    // A start goes on from `kept`, and saves after every interval.
    double trained = kept;
    double written_at = 0.0;
    double in_write = kept;
    for (;;) {
      const double piece = std::min(interval_s, work_s - trained);
      const double end = now + piece + costs.stall_s;
      if (in_write > kept && written_at <= std::min(end, fails)) kept = in_write;
      if (end > fails) break;
      now = end;
      trained += piece;
      in_write = trained;
      written_at = now + costs.write_s;
      if (trained >= work_s) {
        kept = trained;
        break;
      }
    }
    if (kept >= work_s) break;
    now = fails + costs.restart_s;
    fails += between(random);
    while (fails < now) {
      now = fails + costs.restart_s;
      fails += between(random);
    }
  }
  return work_s / now;
}

double mean_goodput(const FailureCosts& costs, double interval_s) {
  std::mt19937_64 random(1);
  constexpr int kRuns = 1000;
  double seconds = 0.0;
  const double work_s = 20.0 * costs.between_s;
  for (int i = 0; i < kRuns; ++i) {
    seconds += work_s / played_goodput(costs, interval_s, work_s, random);
  }
  return kRuns * work_s / seconds;
}

TEST(Goodput, IsThatOfAThousandPlayedRunsWithinTwoPoints) {
  const FailureCosts rare = {400000.0, 2.0, 60.0, 300.0};
  const FailureCosts often = {11000.0, 60.0, 0.0, 600.0};
  const FailureCosts beside = {20000.0, 5.0, 200.0, 400.0};
  for (const FailureCosts& costs : {rare, often, beside}) {
    for (const double interval : {600.0, 1800.0, 7200.0}) {
      EXPECT_NEAR(expected_goodput(costs, interval), mean_goodput(costs, interval), 0.02)
          << costs.between_s << " " << interval;
    }
  }
}

TEST(Goodput, IsHighestAtTheBestInterval) {
  for (const double stall : {1.0, 30.0, 300.0}) {
    const FailureCosts costs = {36000.0, stall, 0.0, 300.0};
    const double best = best_interval(costs);
    double highest = 0.0;
    for (double interval = 10.0; interval < 36000.0; interval *= 1.01) {
      highest = std::max(highest, expected_goodput(costs, interval));
    }
    EXPECT_NEAR(expected_goodput(costs, best), highest, 1e-4) << stall;
    EXPECT_GT(expected_goodput(costs, best), expected_goodput(costs, 2.0 * best));
    EXPECT_GT(expected_goodput(costs, best), expected_goodput(costs, 0.5 * best));
    // Young's estimate is Daly's first term.
    EXPECT_NEAR(best / std::sqrt(2.0 * stall * 36000.0), 1.0, 0.12) << stall;
  }
}

TEST(Goodput, OfARunThatNeverFailsIsWhatSavesLeave) {
  const FailureCosts costs = {1e12, 10.0, 100.0, 300.0};
  EXPECT_NEAR(expected_goodput(costs, 90.0), 0.9, 1e-6);
}

}  // namespace
}  // namespace longhaul::plan
