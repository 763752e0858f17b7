#include "longhaul/train/history/end_rule.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <random>
#include <utility>
#include <vector>

namespace longhaul::train {
namespace {

constexpr int64_t kDecay = 500;
constexpr int64_t kWarmup = 50;
constexpr int64_t kMost = 1'000'000;

optim::ScheduleBasis wsd_basis() {
  optim::ScheduleBasis basis;
  basis.section.kind = ScheduleKind::Wsd;
  basis.section.warmup_steps = kWarmup;
  basis.section.decay_steps = kDecay;
  basis.lr = 1e-3;
  basis.steps = kMost;
  return basis;
}

using StepSeconds = std::function<double(int64_t step)>;

/// A run until a date whose steps take what a test says.
class DatedRun {
 public:
  DatedRun(double date, StepSeconds seconds)
      : date_(date), seconds_(std::move(seconds)) {}

  optim::ScheduleBasis basis = wsd_basis();
  int64_t step = 0;
  int64_t world = 8;
  double now = 0.0;          ///< true seconds since the run began
  double clock_ahead = 0.0;  ///< by how much the wall clock is wrong
  double after = 0.0;        ///< seconds of the saves
  int decisions = 0;

  void run_to(int64_t last) {
    while (step < last && (!basis.ending || step < basis.ending->end)) {
      const double took = seconds_(++step);
      now += took;
      measured_.push_back(took);
      const auto count = std::min<int64_t>(std::ssize(measured_), kDecay);
      const double left = date_ - now - clock_ahead;
      const auto decided = decide_end({measured_.end() - count, measured_.end()},
                                      {step, kMost, world, left, after}, basis);
      if (!decided) continue;
      basis.ending = *decided;
      ++decisions;
    }
  }
  void run() { run_to(kMost); }
  /// Begins another start, in which nothing is measured yet.
  void start_again() { measured_.clear(); }
  /// Returns by which share of its time the run ends before the date.
  double early() const { return (date_ - clock_ahead - now - after) / date_; }
  int64_t decay() const { return basis.ending->end - basis.ending->begin; }

 private:
  double date_;
  StepSeconds seconds_;
  std::vector<double> measured_;
};

/// Returns steps that vary around a second by a share.
StepSeconds noisy(uint64_t seed, double share) {
  return [random = std::mt19937_64(seed), share](int64_t) mutable {
    const double exponent = std::normal_distribution<double>(0.0, share)(random);
    return std::exp(exponent - share * share / 2.0);
  };
}

void expect_on_time(const DatedRun& run) {
  EXPECT_EQ(run.decisions, 1);
  // One run in about a thousand needs more than the margin, and then a little more.
  EXPECT_GE(run.early(), -0.002);
  EXPECT_LE(run.early(), 0.01);
  // Between two steps the number of steps that fit changes by a few.
  EXPECT_LE(run.decay(), kDecay);
  EXPECT_GE(run.decay(), kDecay - kDecay / 50);
}

TEST(EndRule, SteadyStepsEndAtTheDateWithTheWholeDecay) {
  DatedRun run(10'000.0, [](int64_t) { return 1.0; });
  run.after = 20.0;
  run.run();
  EXPECT_EQ(run.basis.ending, (optim::Ending{9480, 9980, 8}));
  EXPECT_EQ(run.now, 9980.0);
}

TEST(EndRule, WithoutDecayStepsTheDecayIsATenthOfTheStepsThatTheRunMakes) {
  DatedRun run(10'000.0, [](int64_t) { return 1.0; });
  run.basis.section.decay_steps.reset();
  run.run();
  EXPECT_EQ(run.now, 10'000.0);
  EXPECT_NEAR(static_cast<double>(run.decay()), 1000.0, 2.0);
}

TEST(EndRule, NoisyStepsEndWithinAPercentOfTheDate) {
  for (uint64_t seed = 0; seed < 10; ++seed) {
    for (const double share : {0.02, 0.1, 0.3}) {
      SCOPED_TRACE(testing::Message() << "seed " << seed << ", share " << share);
      DatedRun run(8000.0, noisy(seed, share));
      run.run();
      expect_on_time(run);
    }
  }
}

TEST(EndRule, SavesAndASlowerSecondHalfCountAsMeasured) {
  DatedRun run(10'000.0, [](int64_t step) {
    return (step < 4000 ? 1.0 : 1.5) + (step % 100 == 0 ? 5.0 : 0.0);
  });
  run.after = 10.0;
  run.run();
  expect_on_time(run);
}

TEST(EndRule, AStepThatStoodStillForHoursBringsNoEarlyDecay) {
  DatedRun run(20'000.0, [](int64_t step) { return step == 9'000 ? 10'000.0 : 1.0; });
  run.run();
  expect_on_time(run);
}

TEST(EndRule, AJumpOfTheClockIsSeenBeforeTheDecisionAndHasNoEffectAfterIt) {
  for (const double jump : {-2000.0, 2000.0}) {
    DatedRun run(10'000.0, [](int64_t) { return 1.0; });
    run.run_to(5000);
    run.clock_ahead = jump;
    run.run();
    expect_on_time(run);
  }
  DatedRun run(10'000.0, noisy(3, 0.05));
  while (!run.basis.ending) run.run_to(run.step + 1);
  const optim::Ending decided = *run.basis.ending;
  run.run_to(run.step + 100);
  run.clock_ahead = 2000.0;
  run.start_again();
  run.run();
  EXPECT_EQ(run.basis.ending, decided);
  EXPECT_EQ(run.step, decided.end);
}

TEST(EndRule, AStartThatMeasuresAnewDecidesNeitherTooSoonNorTooLate) {
  DatedRun run(10'000.0, noisy(4, 0.1));
  for (const int64_t step : {1000, 5000, 9300}) {
    run.run_to(step);
    run.start_again();
  }
  run.run();
  expect_on_time(run);
}

TEST(EndRule, ARunThatComesBackLateDecaysOverTheStepsThatFit) {
  DatedRun run(10'000.0, noisy(5, 0.05));
  run.run_to(5000);
  run.start_again();
  run.now = 9800.0;  // the job waited in the queue
  run.run();
  EXPECT_EQ(run.decisions, 1);
  EXPECT_NEAR(run.early(), 0.0, 0.01);
  EXPECT_LT(run.decay(), 190);
  EXPECT_GT(run.decay(), 100);
  // After the date one step is left, so that the end is like every other end.
  DatedRun gone(10'000.0, [](int64_t) { return 1.0; });
  gone.run_to(5000);
  gone.now = 20'000.0;
  gone.run();
  EXPECT_EQ(gone.basis.ending, (optim::Ending{5001, 5002, 8}));
}

TEST(EndRule, AnotherNumberOfRanksDecidesAnewAndTheRateGoesOn) {
  bool halved = false;
  DatedRun run(10'000.0, [&](int64_t) { return halved ? 2.0 : 1.0; });
  run.run_to(9700);
  ASSERT_EQ(run.basis.ending, (optim::Ending{9500, 10'000, 8}));
  run.start_again();
  run.run_to(9720);
  EXPECT_EQ(run.decisions, 1);
  const double before = optim::RunSchedule(run.basis).lr(9741);
  halved = true;
  run.world = 4;
  run.start_again();
  run.run();
  EXPECT_EQ(run.decisions, 2);
  EXPECT_EQ(run.basis.ending->world, 4);
  EXPECT_NEAR(run.early(), 0.0, 0.01);
  // Rank 0 decides after twenty measured steps. The rate of the next step is that of the
  // decision before, but for rounding to whole steps.
  EXPECT_NEAR(optim::RunSchedule(run.basis).lr(9741), before, 1e-3 / 100.0);
  EXPECT_LT(optim::RunSchedule(run.basis).lr(run.step), 1e-3 / 100.0);
}

TEST(EndRule, AnotherNumberOfRanksAfterTheDateFinishesTheDecay) {
  optim::ScheduleBasis basis = wsd_basis();
  basis.ending = {1000, 1500, 8};
  const std::vector<double> second(30, 1.0);
  EXPECT_EQ(decide_end(second, {1200, kMost, 4, -60.0, 5.0}, basis),
            (optim::Ending{1000, 1500, 4}));
}

TEST(EndRule, DecidesNothingInTheWarmUpNorInTheDecayThatRunStepsBegan) {
  const std::vector<double> second(30, 1.0);
  const auto decided = [&](int64_t step, double left) {
    return decide_end(second, {step, kMost, 8, left, 0.0}, wsd_basis());
  };
  EXPECT_EQ(decided(kWarmup - 1, 10.0), std::nullopt);
  EXPECT_EQ(decided(kWarmup, 10.0), (optim::Ending{kWarmup, kWarmup + 10, 8}));
  EXPECT_EQ(decided(kMost - kDecay - 1, 501.0), std::nullopt);
  EXPECT_TRUE(decided(kMost - kDecay - 1, 500.5).has_value());
  EXPECT_EQ(decided(kMost - kDecay, 10.0), std::nullopt);
  EXPECT_EQ(decided(kMost, 10.0), std::nullopt);
}

TEST(EndRule, AFewMeasuredStepsDecideOnlyWhereNoMoreFit) {
  const auto decided = [](size_t measured, double left) {
    const std::vector<double> seconds(measured, 1.0);
    return decide_end(seconds, {1000, kMost, 8, left, 0.0}, wsd_basis());
  };
  EXPECT_EQ(decided(0, 1.0), std::nullopt);
  EXPECT_EQ(decided(19, 21.0), std::nullopt);
  EXPECT_EQ(decided(19, 20.5), (optim::Ending{1000, 1020, 8}));
  EXPECT_EQ(decided(20, 21.0), (optim::Ending{1000, 1021, 8}));
}

}  // namespace
}  // namespace longhaul::train
