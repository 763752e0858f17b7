#include "longhaul/optim/schedule.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numbers>

#include "longhaul/base/error.h"

namespace longhaul::optim {
namespace {

/// Returns the rate at a step of the programs that the forms are taken from, which count
/// from 0.
double at(const Schedule& schedule, int64_t scheduler_step) {
  return schedule.lr(scheduler_step + 1);
}

ScheduleSection section(ScheduleKind kind, int64_t warmup) {
  ScheduleSection s;
  s.kind = kind;
  if (warmup > 0) s.warmup_steps = warmup;
  return s;
}

void expect_rate(double actual, double expected, double relative = 1e-12) {
  EXPECT_NEAR(actual, expected, std::abs(expected) * relative + 1e-20);
}

TEST(Schedule, CosineHasTheValuesOfThe70bRecipe) {
  ScheduleSection s = section(ScheduleKind::Cosine, 2000);
  s.min_lr = 1e-6;
  const Schedule schedule(s, 1.5e-5, 30000);
  expect_rate(at(schedule, 0), 1.5e-5 / 2001);
  EXPECT_NEAR(at(schedule, 0), 7.496e-9, 5e-13);
  expect_rate(at(schedule, 999), 1.5e-5 * 1000 / 2001);
  EXPECT_NEAR(at(schedule, 999), 7.496e-6, 5e-10);
  expect_rate(at(schedule, 2000), 1.5e-5);
  expect_rate(at(schedule, 16000), 8.0e-6);
  expect_rate(at(schedule, 30000), 1e-6);
  expect_rate(at(schedule, 45000), 1e-6);
}

TEST(Schedule, CosineWithConstantStepsWarmsUpFromZeroAndHoldsItsMinimum) {
  ScheduleSection s = section(ScheduleKind::Cosine, 100);
  s.constant_steps = 200;
  s.min_lr = 1e-5;
  const Schedule schedule(s, 1e-3, 1000);
  EXPECT_EQ(at(schedule, 0), 0.0);
  expect_rate(at(schedule, 50), 5e-4);
  expect_rate(at(schedule, 100), 1e-3);
  expect_rate(at(schedule, 450), (1e-3 + 1e-5) / 2);  // halfway through T - W - C = 700
  expect_rate(at(schedule, 800), 1e-5);
  expect_rate(at(schedule, 999), 1e-5);
}

TEST(Schedule, LinearHasTheValuesOfTheLlama2AndBertRecipes) {
  const Schedule llama(section(ScheduleKind::Linear, 100), 1.5e-4, 31800);
  EXPECT_EQ(at(llama, 0), 0.0);
  expect_rate(at(llama, 100), 1.5e-4);
  expect_rate(at(llama, 15950), 7.5e-5);
  EXPECT_EQ(at(llama, 31800), 0.0);
  EXPECT_EQ(at(llama, 40000), 0.0);
  const Schedule bert(section(ScheduleKind::Linear, 2000), 4e-4, 28125);
  expect_rate(at(bert, 1000), 2e-4);
  expect_rate(at(bert, 2000), 4e-4);
  EXPECT_EQ(at(bert, 28125), 0.0);
}

ScheduleSection smp(DecayForm form) {
  ScheduleSection s;
  s.kind = ScheduleKind::Smp;
  s.warmup_fraction = 0.0032;
  s.horizon = 47683;
  s.decay = form;
  s.min_lr = 1e-5;
  return s;
}

TEST(Schedule, SmpCosineHasItsDefaultsValues) {
  const Schedule schedule(smp(DecayForm::Cosine), 1e-4, 5000);
  EXPECT_EQ(at(schedule, 0), 0.0);
  EXPECT_NEAR(at(schedule, 76), 4.98e-5, 5e-8);
  expect_rate(at(schedule, 76), 1e-4 * 76 / (0.0032 * 47683));
  // The first step after a fractional W = 152.59 is on the cosine already.
  const double n = 153 - 0.0032 * 47683;
  expect_rate(at(schedule, 153), 5e-5 * (std::cos(M_PI * n / 47683) + 1));
  EXPECT_GT(at(schedule, 37900), 1e-5);
  EXPECT_EQ(at(schedule, 38100), 1e-5);  // clamped: a kink, not an offset
  EXPECT_EQ(at(schedule, 100000), 1e-5);
}

TEST(Schedule, SmpFormsDivideByTheWholeHorizonAndStopAtItsEnd) {
  const double warmup = 0.0032 * 47683;
  const double end = 47683;
  const double n = 20000 - warmup;
  expect_rate(at(Schedule(smp(DecayForm::Linear), 1e-4, 1), 20000),
              1e-4 * (end - n) / end);
  expect_rate(at(Schedule(smp(DecayForm::Exponential), 1e-4, 1), 20000),
              1e-4 * std::exp(-0.693 * n / end));
  expect_rate(at(Schedule(smp(DecayForm::Exponential), 1e-4, 1), 1000000),
              1e-4 * std::exp(-0.693 * (end - 2 * warmup) / end));
  expect_rate(at(Schedule(smp(DecayForm::Constant), 1e-4, 1), 1000000), 1e-4);
  ScheduleSection plateau = smp(DecayForm::Plateau);
  plateau.plateau_fraction = 0.25;
  const Schedule schedule(plateau, 1e-4, 1);
  const double p = warmup + 0.25 * end;
  expect_rate(at(schedule, 12000), 1e-4);
  expect_rate(at(schedule, 20000), 1e-4 * (end - 20000) / (end - p));
  EXPECT_EQ(at(schedule, 47683), 1e-5);
}

TEST(Schedule, SmpFloorDoesNotLiftTheWarmup) {
  EXPECT_LT(at(Schedule(smp(DecayForm::Cosine), 1e-4, 1), 1), 1e-5);
}

TEST(Schedule, WsdHoldsAndThenDecaysOverItsLastSteps) {
  ScheduleSection s = section(ScheduleKind::Wsd, 10);
  s.decay_steps = 20;
  s.min_lr = 1e-4;
  for (const auto& [form, half] : {std::pair{DecayForm::Linear, 0.5},
                                   {DecayForm::Cosine, 0.5},
                                   {DecayForm::Sqrt, 1 - std::sqrt(0.5)}}) {
    s.decay = form;
    const Schedule schedule(s, 1e-3, 100);
    expect_rate(at(schedule, 0), 1e-3 / 11);
    expect_rate(at(schedule, 10), 1e-3);
    expect_rate(at(schedule, 80), 1e-3);
    expect_rate(at(schedule, 90), 1e-4 + 9e-4 * half);
    expect_rate(at(schedule, 100), 1e-4);
    expect_rate(at(schedule, 500), 1e-4);
  }
}

/// Returns the share of the rate that is left after the part x of a decay.
double left(DecayForm form, double x) {
  if (form == DecayForm::Cosine) return 0.5 * (1.0 + std::cos(std::numbers::pi * x));
  return 1.0 - (form == DecayForm::Sqrt ? std::sqrt(x) : x);
}

/// Returns torchtitan's rate as a share of lr: W steps up, a constant part with one step
/// beyond the run, D steps down. `s` counts from 0.
double torchtitan_share(int64_t steps, int64_t warmup, int64_t decay, DecayForm form,
                        double floor, int64_t s) {
  const int64_t stable = steps + 1 - warmup - decay;
  if (s < warmup) return static_cast<double>(s + 1) / static_cast<double>(warmup);
  if (s < warmup + stable) return 1.0;
  const double x =
      static_cast<double>(s + 1 - warmup - stable) / static_cast<double>(decay);
  return floor + (1.0 - floor) * left(form, x);
}

// The form that `longhaul import --flags` writes for torchtitan's files.
TEST(Schedule, WsdWithAWarmupOfOneStepLessIsTorchtitansAtEachStep) {
  constexpr int64_t kSteps = 50;
  for (const DecayForm form : {DecayForm::Linear, DecayForm::Cosine, DecayForm::Sqrt}) {
    for (const int64_t warmup : {0, 1, 2, 20, 49, 50}) {
      for (const int64_t wanted : {0, 1, 10, 30, 50}) {
        SCOPED_TRACE(fmt::format("form {}, warm-up {}, decay {}", static_cast<int>(form),
                                 warmup, wanted));
        const int64_t decay = std::min(wanted, kSteps - warmup);
        ScheduleSection s = section(ScheduleKind::Wsd, std::max<int64_t>(warmup - 1, 0));
        s.warmup_start = WarmupStart::NonZero;
        s.decay = form;
        s.decay_steps = std::max<int64_t>(decay, 1);
        s.min_lr = 1e-4;
        const Schedule schedule(s, 1e-3, kSteps);
        for (int64_t step = 0; step < kSteps; ++step) {
          expect_rate(at(schedule, step),
                      1e-3 * torchtitan_share(kSteps, warmup, decay, form, 0.1, step));
        }
      }
    }
  }
}

/// Returns nanotron's rate: a warm-up from 0 or at the whole rate, then D steps down
/// after `first`.
double nanotron_rate(bool constant, int64_t warmup, int64_t first, int64_t decay,
                     DecayForm form, int64_t s) {
  if (s <= warmup) {
    return constant ? 1e-3 : 1e-3 * static_cast<double>(s) / static_cast<double>(warmup);
  }
  if (s < first) return 1e-3;
  if (s >= first + decay) return 1e-4;
  const double x = static_cast<double>(s - first) / static_cast<double>(decay);
  return 1e-4 + 9e-4 * left(form, x);
}

// The forms that `longhaul import --flags` writes for nanotron's files.
TEST(Schedule, WsdWithAHorizonIsNanotronsAtEachStep) {
  constexpr int64_t kSteps = 50;
  constexpr int64_t kWarmup = 10;
  for (const DecayForm form : {DecayForm::Linear, DecayForm::Cosine, DecayForm::Sqrt}) {
    for (const bool constant : {false, true}) {
      for (const int64_t first : {10, 11, 40}) {
        for (const int64_t decay : {1, 10, 40}) {
          SCOPED_TRACE(fmt::format("form {}, constant {}, from {}, decay {}",
                                   static_cast<int>(form), constant, first, decay));
          ScheduleSection s = section(ScheduleKind::Wsd, constant ? 0 : kWarmup);
          s.warmup_start = WarmupStart::Zero;
          s.decay = form;
          s.decay_steps = decay;
          s.horizon = first + decay;
          s.min_lr = 1e-4;
          const Schedule schedule(s, 1e-3, kSteps);
          for (int64_t step = 0; step < kSteps; ++step) {
            expect_rate(at(schedule, step),
                        nanotron_rate(constant, kWarmup, first, decay, form, step));
          }
        }
      }
    }
  }
}

TEST(Schedule, ConstantOnlyWarmsUp) {
  const Schedule schedule(section(ScheduleKind::Constant, 4), 2e-4, 10);
  expect_rate(at(schedule, 0), 4e-5);
  expect_rate(at(schedule, 4), 2e-4);
  expect_rate(at(schedule, 1000), 2e-4);
  expect_rate(at(Schedule(section(ScheduleKind::Constant, 0), 2e-4, 10), 0), 2e-4);
}

TEST(Schedule, HorizonReplacesTheRunsLength) {
  ScheduleSection s = section(ScheduleKind::Linear, 0);
  s.horizon = 200;
  expect_rate(at(Schedule(s, 1.0, 50), 100), 0.5);
}

TEST(Schedule, PiecesThatDoNotFitAreRefusedWithTheirNumbers) {
  ScheduleSection s = section(ScheduleKind::Cosine, 90);
  s.constant_steps = 20;
  try {
    const Schedule schedule(s, 1e-3, 100);
    FAIL() << "accepted";
  } catch (const ConfigError& e) {
    EXPECT_NE(std::string(e.what()).find("90 steps and 20 further"), std::string::npos)
        << e.what();
  }
  EXPECT_THROW(Schedule(section(ScheduleKind::Constant, 0), 1.0, 10).lr(0), Error);
}

}  // namespace
}  // namespace longhaul::optim
