#include "longhaul/train/history/step_guard.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "longhaul/base/error.h"
#include "tests/support/scratch_directory.h"

namespace longhaul::train {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

ResilienceSection settings(double sigmas, BadStepPolicy policy = BadStepPolicy::Skip) {
  ResilienceSection s;
  s.on_bad_step = policy;
  s.spike_sigmas = sigmas;
  s.spike_window = 8;
  s.max_bad_steps = 3;
  return s;
}

/// Returns the state after this many good steps with losses 2 and 4 in turn (mean 3,
/// deviation 1) and norms 1.
GuardState after(const StepGuard& guard, int64_t steps) {
  GuardState state;
  for (int64_t i = 1; i <= steps; ++i) {
    EXPECT_TRUE(guard.judge(state, i, i % 2 == 0 ? 4.0 : 2.0, 1.0).good);
  }
  return state;
}

TEST(StepGuard, WhatIsNotFiniteIsBadFromTheFirstStepOn) {
  const StepGuard guard(settings(0.0));
  for (const auto& [loss, norm] :
       {std::pair{kNan, 1.0}, {1.0, kNan}, {kInfinity, 1.0}, {1.0, -kInfinity}}) {
    GuardState state;
    const Verdict verdict = guard.judge(state, 1, loss, norm);
    EXPECT_FALSE(verdict.good);
    EXPECT_EQ(verdict.kind, "nonfinite");
    EXPECT_EQ(verdict.action, BadStepPolicy::Skip);
    EXPECT_TRUE(state.losses.empty() && state.norms.empty());
  }
}

TEST(StepGuard, ABatchWithoutTargetsIsBadAndTheDataIsToBlame) {
  const StepGuard skips(settings(0.0));
  GuardState state;
  const Verdict verdict = skips.judge(state, 3, kNan, 0.0, "next_token");
  EXPECT_FALSE(verdict.good);
  EXPECT_EQ(verdict.kind, "no_targets");
  EXPECT_EQ(verdict.action, BadStepPolicy::Skip);
  EXPECT_TRUE(state.losses.empty() && state.norms.empty());
  EXPECT_NO_THROW(skips.stop_if_told(verdict, state, 3));
  const StepGuard stops(settings(0.0, BadStepPolicy::Stop));
  const std::string message = message_of<InputError>([&] {
    stops.stop_if_told(stops.judge(state, 4, kNan, 0.0, "next_token"), state, 4);
  });
  EXPECT_HAS(message, "[data] step 4: the batch has no target at all for next_token");
  EXPECT_HAS(message, "resilience.on_bad_step");
}

TEST(StepGuard, ASpikeIsMoreThanTheStatedDeviationsAboveTheMean) {
  const StepGuard guard(settings(3.0));
  const GuardState before = after(guard, 8);
  GuardState state = before;
  EXPECT_TRUE(guard.judge(state, 9, 5.99, 1.0).good);
  state = before;
  const Verdict verdict = guard.judge(state, 9, 6.01, 1.0);
  EXPECT_EQ(verdict.kind, "spike");
  EXPECT_EQ(verdict.why,
            "loss 6.01 is above the limit 6, which is 3 standard deviations of 1 above "
            "the mean 3 of 8 good steps");
  state = before;
  EXPECT_EQ(guard.judge(state, 9, 3.0, 1.01).kind, "spike") << "of the gradient norm";
  state = before;
  EXPECT_TRUE(guard.judge(state, 9, -100.0, 0.0).good) << "low is no spike";
}

TEST(StepGuard, RoundingOfAConstantLossIsNoSpike) {
  const StepGuard guard(settings(6.0));
  GuardState state;
  for (int64_t i = 1; i <= 8; ++i) guard.judge(state, i, 2.0, 1.0);
  EXPECT_TRUE(guard.judge(state, 9, 2.0 + 1e-6, 1.0).good);
  EXPECT_FALSE(guard.judge(state, 10, 2.02, 1.0).good);
}

TEST(StepGuard, HalfAWindowHasToBeFullBeforeASpikeIsSeen) {
  const StepGuard guard(settings(3.0));
  GuardState three = after(guard, 3);
  EXPECT_TRUE(guard.judge(three, 4, 1e6, 1.0).good);
  GuardState four = after(guard, 4);
  EXPECT_FALSE(guard.judge(four, 5, 1e6, 1.0).good);
}

TEST(StepGuard, BadValuesNeverEnterTheWindow) {
  const StepGuard guard(settings(3.0));
  GuardState state = after(guard, 8);
  const GuardState before = state;
  guard.judge(state, 9, 1e6, 1.0);
  guard.judge(state, 10, kNan, kNan);
  EXPECT_EQ(state.losses, before.losses);
  EXPECT_EQ(state.norms, before.norms);
  EXPECT_FALSE(guard.judge(state, 11, 1e6, 1.0).good);
}

TEST(StepGuard, TheWindowHoldsTheNewestOnly) {
  const StepGuard guard(settings(0.0));
  GuardState state;
  for (int64_t i = 1; i <= 20; ++i) {
    guard.judge(state, i, static_cast<double>(i), 1.0);
  }
  EXPECT_EQ(state.losses, (std::vector<double>{13, 14, 15, 16, 17, 18, 19, 20}));
  EXPECT_EQ(state.norms.size(), 8u);
}

TEST(StepGuard, TooManyBadStepsInAWindowStopTheRun) {
  const StepGuard guard(settings(0.0));
  GuardState state;
  for (const int64_t step : {10, 11, 13}) {
    EXPECT_EQ(guard.judge(state, step, kNan, 1.0).action, BadStepPolicy::Skip);
  }
  GuardState later = state;
  const Verdict verdict = guard.judge(state, 14, kNan, 1.0);
  EXPECT_EQ(verdict.action, BadStepPolicy::Stop);
  EXPECT_TRUE(verdict.too_many);
  EXPECT_EQ(guard.judge(later, 18, kNan, 1.0).action, BadStepPolicy::Skip)
      << "the one of step 10 is past";
}

TEST(StepGuard, OnlyABadVerdictThatSaysSoStopsTheRunAndItSaysWhy) {
  ResilienceSection rules = settings(0.0);
  GuardState state;
  const StepGuard skips(rules);
  skips.stop_if_told(skips.judge(state, 9, 1.0, 1.0), state, 9);
  for (const int64_t step : {10, 11, 13}) {
    skips.stop_if_told(skips.judge(state, step, kNan, 1.0), state, step);
  }
  const Verdict many = skips.judge(state, 14, kNan, 1.0);
  const std::string message =
      message_of<Error>([&] { skips.stop_if_told(many, state, 14); });
  EXPECT_HAS(message, "[numerics] step 14: loss nan and gradient norm 1");
  EXPECT_HAS(message, "the bad steps are 10, 11, 13, 14");
  rules.on_bad_step = BadStepPolicy::Stop;
  const StepGuard stops(rules);
  GuardState fresh;
  const Verdict first = stops.judge(fresh, 5, 1.0, kNan);
  EXPECT_HAS(message_of<Error>([&] { stops.stop_if_told(first, fresh, 5); }),
             "resilience.on_bad_step can skip such steps");
}

TEST(StepGuard, JudgesAfterAStopAndAReadAsWithoutThem) {
  const StepGuard guard(settings(2.5));
  GuardState state;
  for (int64_t i = 1; i <= 30; ++i) {
    guard.judge(state, i, 2.0 + std::sin(static_cast<double>(i)) / 3.0, 1.0 / 3.0);
  }
  guard.judge(state, 31, kNan, 1.0);
  const GuardState read =
      GuardState::from_json(parse_json(state.to_json().dump(), "state.json"));
  EXPECT_EQ(read, state);
}

}  // namespace
}  // namespace longhaul::train
