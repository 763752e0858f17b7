#include "longhaul/plan/goodput.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <queue>
#include <random>
#include <vector>

namespace longhaul::plan {
namespace {

constexpr double kHour = 3600.0;
constexpr double kDay = 24.0 * kHour;
constexpr double kSaveEvery = 1800.0;

/// How lost nodes are replaced.
struct Replacement {
  int64_t spares = 0;
  double replace_s = 0.0;  ///< mean; 0: at once
  bool varies = true;      ///< an exponential distribution; else each takes as long
};

/// Failures of the nodes of a run, one after the other.
class PlayedNodes {
 public:
  PlayedNodes(double between_s, const Replacement& by, std::mt19937_64& random)
      : by_(by), random_(random), between_(1.0 / between_s) {
    fails_ = between_(random_);
  }

  double fails() const { return fails_; }
  /// Loses a node at fails(). Returns when the run has as many nodes as it needs.
  double lose() {
    double now = fails_;
    if (by_.replace_s > 0.0) {
      std::exponential_distribution<double> after(1.0 / by_.replace_s);
      back_.push(now + (by_.varies ? after(random_) : by_.replace_s));
      while (!back_.empty() && back_.top() <= now) back_.pop();
      if (std::ssize(back_) > by_.spares) now = back_.top();
    }
    fails_ = now + between_(random_);
    return now;
  }

 private:
  Replacement by_;
  std::mt19937_64& random_;
  std::exponential_distribution<double> between_;
  double fails_ = 0.0;
  /// When nodes that are away come back, the earliest first.
  std::priority_queue<double, std::vector<double>, std::greater<>> back_;
};

/// Returns the share of its time that a run keeps which trains for `work_s` seconds,
/// played failure by failure and save by save. A save counts when it is written, beside
/// the training that goes on; what was trained since the newest such save is lost.
double played_goodput(const FailureCosts& costs, double interval_s, double work_s,
                      const Replacement& by, std::mt19937_64& random) {
  PlayedNodes nodes(costs.between_s, by, random);
  double now = 0.0;
  double kept = 0.0;  // training in the newest written save
  while (kept < work_s) {
    // A start goes on from `kept`, and saves after every interval.
    double trained = kept;
    double written_at = 0.0;
    double in_write = kept;
    for (;;) {
      const double piece = std::min(interval_s, work_s - trained);
      const double end = std::max(now + piece, written_at) + costs.stall_s;
      if (in_write > kept && written_at <= std::min(end, nodes.fails())) kept = in_write;
      if (end > nodes.fails()) break;
      now = end;
      trained += piece;
      in_write = trained;
      written_at = now + costs.write_s;
      if (trained < work_s) continue;
      kept = trained;
      break;
    }
    if (kept >= work_s) break;
    do {
      now = nodes.lose() + costs.restart_s;
    } while (nodes.fails() < now);
  }
  return work_s / now;
}

double mean_goodput(const FailureCosts& costs, double interval_s, double work_s,
                    const Replacement& by = {}) {
  std::mt19937_64 random(1);
  constexpr int kRuns = 1000;
  double sum = 0.0;
  for (int i = 0; i < kRuns; ++i) {
    sum += played_goodput(costs, interval_s, work_s, by, random);
  }
  return sum / kRuns;
}

TEST(Goodput, IsThatOfAThousandPlayedRunsOfPublishedFailuresWithinTwoPoints) {
  for (const double node_hours : {1000.0, 2500.0, 6300.0}) {
    for (const double nodes : {16.0, 128.0, 1024.0}) {
      const FailureCosts costs = {node_hours * kHour / nodes, 5.0, 90.0, 400.0};
      for (const double interval : {kSaveEvery, best_interval(costs)}) {
        EXPECT_NEAR(expected_goodput(costs, interval),
                    mean_goodput(costs, interval, 20.0 * kDay), 0.02)
            << node_hours << " " << nodes << " " << interval;
      }
    }
  }
}

TEST(Goodput, IsThatOfPlayedRunsWhereSavesAreSlow) {
  // Saves for which training waits, long writes beside it, and writes that are longer
  // than the interval, so that a save waits for the one before.
  const FailureCosts waits = {11000.0, 300.0, 0.0, 600.0};
  const FailureCosts beside = {20000.0, 5.0, 1500.0, 400.0};
  for (const FailureCosts& costs : {waits, beside}) {
    for (const double interval : {600.0, 1800.0, 7200.0}) {
      EXPECT_NEAR(expected_goodput(costs, interval),
                  mean_goodput(costs, interval, 20.0 * kDay), 0.02)
          << costs.between_s << " " << interval;
    }
  }
}

TEST(Goodput, WithSparesIsThatOfPlayedRunsWithinTwoPoints) {
  constexpr double kNodes = 128.0;
  for (const double node_hours : {1000.0, 6300.0}) {
    const FailureCosts costs = {node_hours * kHour / kNodes, 5.0, 90.0, 400.0};
    for (const double replace_s : {300.0, 4.0 * kHour, 24.0 * kHour}) {
      for (const int64_t spares : {0, 1, 4}) {
        const double formula =
            expected_goodput(costs, kSaveEvery) /
            (1.0 + waits_for_nodes(costs.between_s, replace_s, spares));
        for (const bool varies : {false, true}) {
          EXPECT_NEAR(
              formula,
              mean_goodput(costs, kSaveEvery, 30.0 * kDay, {spares, replace_s, varies}),
              0.02)
              << node_hours << " " << replace_s << " " << spares << " " << varies;
        }
      }
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

TEST(Goodput, IsHighestWhereSavesDoNotWaitForEachOther) {
  const FailureCosts costs = {36000.0, 1.0, 2000.0, 300.0};
  const double best = best_interval(costs);
  EXPECT_DOUBLE_EQ(best, 2000.0);
  EXPECT_GT(expected_goodput(costs, best), expected_goodput(costs, 0.9 * best));
  EXPECT_GT(expected_goodput(costs, best), expected_goodput(costs, 1.1 * best));
}

TEST(Goodput, OfARunThatNeverFailsIsWhatSavesLeave) {
  const FailureCosts costs = {1e12, 10.0, 50.0, 300.0};
  EXPECT_NEAR(expected_goodput(costs, 90.0), 0.9, 1e-6);
}

TEST(Spares, AreWaitedForAsErlangsFormulaSays) {
  // With a load of 2 nodes away, spares are all in use 1, 2/3 and 2/5 of the time.
  EXPECT_DOUBLE_EQ(waits_for_nodes(100.0, 200.0, 0), 2.0);
  EXPECT_DOUBLE_EQ(waits_for_nodes(100.0, 200.0, 1), 2.0 * (2.0 / 3.0) / 2.0);
  EXPECT_DOUBLE_EQ(waits_for_nodes(100.0, 200.0, 2), 2.0 * (2.0 / 5.0) / 3.0);
  EXPECT_DOUBLE_EQ(waits_for_nodes(100.0, 0.0, 0), 0.0);
}

TEST(Spares, AreAsManyAsTrainLongestForAPaidNode) {
  for (const double replace_s : {0.0, 300.0, 4.0 * kHour, 72.0 * kHour}) {
    for (const int64_t nodes : {1, 16, 512}) {
      const double between_s = 1000.0 * kHour / static_cast<double>(nodes);
      double most = 0.0;
      int64_t wanted = 0;
      for (int64_t spares = 0; spares <= nodes; ++spares) {
        const double trained = static_cast<double>(nodes) /
                               static_cast<double>(nodes + spares) /
                               (1.0 + waits_for_nodes(between_s, replace_s, spares));
        if (trained > most) wanted = spares;
        most = std::max(most, trained);
      }
      EXPECT_EQ(best_spares(between_s, replace_s, nodes), wanted)
          << replace_s << " " << nodes;
    }
  }
  // Nodes that come at once need no spares; others need some.
  EXPECT_EQ(best_spares(7000.0, 0.0, 512), 0);
  EXPECT_GT(best_spares(7000.0, 72.0 * kHour, 512), 30);
}

}  // namespace
}  // namespace longhaul::plan
