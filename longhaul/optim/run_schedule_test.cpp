#include "longhaul/optim/run_schedule.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <numbers>

#include "longhaul/base/error.h"
#include "tests/support/settings.h"

namespace longhaul::optim {
namespace {

/// Returns kSmallest with 1000 steps of cosine from 1e-3 to 1e-5, changed by `sets`.
RunConfig settings(std::vector<std::string> sets = {}) {
  std::vector<std::string> all = {"schedule.warmup_steps=100", "schedule.min_lr=1e-5"};
  all.insert(all.end(), sets.begin(), sets.end());
  return accepted("", all).config;
}

ScheduleBasis plain(const RunConfig& config) {
  return first_schedule(config, *config.run.steps);
}

/// Returns the schedule after `step` steps of `saved`, with the settings `now`.
RunSchedule after(int64_t step, const RunConfig& saved, const RunConfig& now) {
  return RunSchedule(
      resumed_schedule({saved, plain(saved), step}, now, *now.run.steps, true));
}

std::string refusal(int64_t step, const RunConfig& saved, const RunConfig& now) {
  return message_of<ConfigError>([&] { after(step, saved, now); });
}

void expect_value(double actual, double expected) {
  EXPECT_NEAR(actual, expected, 1e-12 * std::abs(expected));
}

double cosine(double low, double high, double x) {
  return low + (high - low) * 0.5 * (1.0 + std::cos(std::numbers::pi * x));
}

TEST(RunSchedule, OfUnchangedSettingsIsThatOfTheCheckpoint) {
  const RunConfig config = settings();
  const RunSchedule schedule = after(500, config, config);
  const Schedule expected(config.schedule, 1e-3, 1000);
  for (const int64_t step : {1, 100, 101, 501, 1000, 1200}) {
    EXPECT_EQ(schedule.lr(step), expected.lr(step)) << step;
  }
  EXPECT_EQ(schedule.describe(), "");
}

TEST(RunSchedule, KeepsTheCheckpointsWhateverIsSet) {
  const RunConfig saved = settings();
  const RunConfig now = settings({"schedule.continue=keep", "schedule.kind=constant",
                                  "run.steps=3000", "optimizer.lr=5e-3"});
  const RunSchedule schedule = after(500, saved, now);
  for (const int64_t step : {501, 1000, 2500}) {
    EXPECT_EQ(schedule.lr(step), RunSchedule(plain(saved)).lr(step)) << step;
  }
  EXPECT_EQ(schedule.lr(2500), 1e-5);
}

TEST(RunSchedule, WarmsUpAgainToAFractionAndThenFollowsTheNewForm) {
  const RunConfig saved = settings();
  const RunConfig now =
      settings({"schedule.continue=rewarm", "schedule.continue_fraction=0.5",
                "schedule.warmup_steps=20", "run.steps=2020", "optimizer.lr=8e-4"});
  const RunSchedule schedule = after(1000, saved, now);
  const double rate = RunSchedule(plain(saved)).lr(1001);
  EXPECT_EQ(rate, 1e-5);
  expect_value(schedule.lr(1001), rate + (4e-4 - rate) * 1.0 / 21.0);
  expect_value(schedule.lr(1010), rate + (4e-4 - rate) * 10.0 / 21.0);
  expect_value(schedule.lr(1020), rate + (4e-4 - rate) * 20.0 / 21.0);
  expect_value(schedule.lr(1021), 4e-4);
  expect_value(schedule.lr(1521), cosine(1e-5, 4e-4, 0.5));
  expect_value(schedule.lr(2020), cosine(1e-5, 4e-4, 0.999));
  EXPECT_EQ(schedule.lr(2021), 1e-5);
  EXPECT_EQ(schedule.describe(),
            "rewarm after step 1000: from 1e-05 to 0.0004 over 20 steps");
}

TEST(RunSchedule, WarmsUpOverAShareOfTheStepsThatAreLeft) {
  const RunConfig saved = settings();
  const RunConfig now =
      accepted("", {"schedule.warmup_fraction=0.1", "run.steps=1500", "schedule.kind=wsd",
                    "schedule.decay_steps=100", "schedule.continue=rewarm"})
          .config;
  const RunSchedule schedule = after(500, saved, now);
  EXPECT_LT(schedule.lr(600), 1e-3);
  EXPECT_EQ(schedule.lr(601), 1e-3);
  EXPECT_EQ(schedule.lr(1401), 1e-3);
  expect_value(schedule.lr(1451), 0.5e-3);
}

TEST(RunSchedule, DecaysFromWhereItIs) {
  const RunConfig saved = settings({"schedule.kind=constant", "schedule.min_lr=0"});
  const auto with = [&](const std::string& decay) {
    return after(
        1000, saved,
        settings({"schedule.continue=decay", "schedule.kind=constant",
                  "schedule.min_lr=1e-4", "schedule.decay=" + decay, "run.steps=1400"}));
  };
  for (const std::string form : {"linear", "cosine", "sqrt"}) {
    EXPECT_EQ(with(form).lr(1001), 1e-3) << form;
    EXPECT_EQ(with(form).lr(1401), 1e-4) << form;
    EXPECT_EQ(with(form).lr(1500), 1e-4) << form;
  }
  expect_value(with("linear").lr(1101), 1e-4 + 9e-4 * 0.75);
  expect_value(with("cosine").lr(1101), cosine(1e-4, 1e-3, 0.25));
  expect_value(with("sqrt").lr(1101), 1e-4 + 9e-4 * 0.5);
  expect_value(with("linear").lr(1400), 1e-4 + 9e-4 / 400.0);
  EXPECT_EQ(with("linear").describe(),
            "decay after step 1000: from 0.001 to 0.0001 at step 1400");
}

TEST(RunSchedule, OfAChangedSectionIsRefusedByName) {
  const RunConfig saved = settings();
  EXPECT_EQ(
      refusal(500, saved,
              settings({"schedule.min_lr=2e-5", "schedule.horizon=1200", "log.every=3"})),
      "[schedule] the checkpoint of step 500 was made with another schedule: "
      "schedule.min_lr was 1e-05, is 2e-05; schedule.horizon was (not given), is 1200. "
      "Set schedule.continue to \"keep\" (its schedule goes on), \"rewarm\" (warm up "
      "again to continue_fraction of optimizer.lr, then follow this schedule) or "
      "\"decay\" (decay from its learning rate to min_lr), or restore the settings");
  // Where no step is left, a changed schedule would have no effect, and is not refused.
  const RunConfig now = settings({"schedule.min_lr=2e-5"});
  EXPECT_EQ(
      resumed_schedule({saved, plain(saved), 1000}, now, 1000, false).section.min_lr,
      1e-5);
}

TEST(RunSchedule, OfALongerRunIsRefusedWhereRatesThatWereDependOnIt) {
  const RunConfig cosine_run = settings();
  const std::string message = refusal(500, cosine_run, settings({"run.steps=2000"}));
  EXPECT_NE(message.find("the run's steps were 1000 and are now 2000 (run.steps), and "
                         "learning rates of past steps depend on them"),
            std::string::npos)
      << message;
  const auto grows = [&](const std::vector<std::string>& more, int64_t step) {
    std::vector<std::string> longer = more;
    longer.emplace_back("run.steps=2000");
    return after(step, accepted("", more).config, accepted("", longer).config);
  };
  EXPECT_EQ(grows({"schedule.kind=constant"}, 500).lr(1500), 1e-3);
  EXPECT_EQ(grows({"schedule.horizon=1000"}, 500).lr(1500), 0.0);
  const std::vector<std::string> wsd = {"schedule.kind=wsd", "schedule.decay_steps=100"};
  EXPECT_EQ(grows(wsd, 899).lr(1500), 1e-3);   // before its decay began
  EXPECT_THROW(grows(wsd, 950), ConfigError);  // after
}

TEST(RunSchedule, DecaysWhereItWasDecidedAndIsUnchangedBefore) {
  const RunConfig config =
      settings({"schedule.kind=wsd", "schedule.warmup_steps=", "run.until=2026-12-24",
                "schedule.warmup_fraction=0.1", "schedule.decay_steps=200"});
  ScheduleBasis basis = plain(config);
  EXPECT_EQ(stable_steps(basis).begin, 100);
  EXPECT_EQ(stable_steps(basis).end, 800);
  const RunSchedule undecided(basis);
  basis.ending = Ending{400, 600, 8};
  EXPECT_EQ(stable_steps(basis).end, 800);
  const auto read = ScheduleBasis::from_json(parse_json(basis.to_json().dump(), "state"));
  EXPECT_EQ(read.ending, basis.ending);
  const RunSchedule schedule(read);
  for (const int64_t step : {1, 50, 100, 101, 400, 401}) {
    EXPECT_EQ(schedule.lr(step), undecided.lr(step)) << step;
  }
  expect_value(schedule.lr(501), 1e-5 + (1e-3 - 1e-5) * 0.5);
  expect_value(schedule.lr(600), 1e-5 + (1e-3 - 1e-5) / 200.0);
  EXPECT_EQ(schedule.lr(601), 1e-5);
  // With the length of the settings, the decision is the settings' own schedule.
  basis.ending = Ending{800, 1000, 8};
  for (const int64_t step : {1, 100, 101, 801, 802, 1000}) {
    EXPECT_EQ(RunSchedule(basis).lr(step), undecided.lr(step)) << step;
  }
}

TEST(RunSchedule, DecaysWhereItWasDecidedAfterANewWarmUp) {
  const RunConfig saved = settings();
  const RunConfig now =
      settings({"schedule.continue=rewarm", "schedule.kind=wsd", "run.steps=3000",
                "run.until=2026-12-24", "schedule.decay_steps=200"});
  ScheduleBasis basis = resumed_schedule({saved, plain(saved), 700}, now, 3000, true);
  const RunSchedule undecided(basis);
  EXPECT_EQ(stable_steps(basis).begin, 800);
  EXPECT_EQ(stable_steps(basis).end, 2800);
  basis.ending = Ending{1000, 1200, 8};
  const RunSchedule schedule(basis);
  for (const int64_t step : {701, 800, 801, 1001}) {
    EXPECT_EQ(schedule.lr(step), undecided.lr(step)) << step;
  }
  expect_value(schedule.lr(1101), 1e-5 + (1e-3 - 1e-5) * 0.5);
}

TEST(RunSchedule, KeepsWhatWasDecidedUntilAnotherScheduleBegins) {
  const std::vector<std::string> wsd = {"schedule.kind=wsd", "schedule.decay_steps=200"};
  const auto also = [&](std::vector<std::string> more) {
    more.insert(more.begin(), wsd.begin(), wsd.end());
    return settings(std::move(more));
  };
  const RunConfig saved = also({"run.until=2026-12-24"});
  ScheduleBasis basis = plain(saved);
  basis.ending = Ending{400, 600, 8};
  const auto resumed = [&](int64_t step, const RunConfig& now) {
    return resumed_schedule({saved, basis, step}, now, *now.run.steps, true);
  };
  EXPECT_EQ(resumed(500, saved).ending, basis.ending);
  EXPECT_EQ(resumed(500, also({"run.until=2027-12-24"})).ending, basis.ending);
  EXPECT_EQ(resumed(500, also({"run.until=2026-12-24", "run.steps=5000"})).ending,
            basis.ending);
  const RunConfig anew = also({"run.until=2027-12-24", "schedule.continue=rewarm"});
  EXPECT_EQ(resumed(500, anew).ending, std::nullopt);
  // Without the setting the run goes on by its steps, but only before the decay began.
  EXPECT_EQ(resumed(400, also({})).ending, std::nullopt);
  const std::string told = message_of<ConfigError>([&] { resumed(500, also({})); });
  EXPECT_NE(told.find("the decay that was decided for it has begun after step 400"),
            std::string::npos)
      << told;
  EXPECT_EQ(resumed(500, also({"schedule.continue=keep"})).ending, basis.ending);
}

TEST(RunSchedule, GoesOnAfterAJunctionAsTheFirstStartHadIt) {
  const RunConfig saved = settings();
  const RunConfig now = settings({"schedule.continue=rewarm", "run.steps=2000"});
  const ScheduleBasis basis =
      resumed_schedule({saved, plain(saved), 700}, now, 2000, true);
  const ScheduleBasis read =
      ScheduleBasis::from_json(parse_json(basis.to_json().dump(), "state"));
  const ScheduleBasis again = resumed_schedule({now, read, 900}, now, 2000, true);
  ASSERT_TRUE(again.from.has_value());
  EXPECT_EQ(*again.from, *basis.from);
  for (const int64_t step : {901, 1500, 2000}) {
    EXPECT_EQ(RunSchedule(again).lr(step), RunSchedule(basis).lr(step)) << step;
  }
  // Once a start has kept the schedule, the starts after it keep the schedule too.
  const RunConfig keep = settings({"schedule.continue=keep", "run.steps=2000"});
  const ScheduleBasis kept = resumed_schedule({now, read, 900}, keep, 2000, true);
  EXPECT_EQ(resumed_schedule({keep, kept, 950}, keep, 2000, true).to_json(),
            basis.to_json());
}

TEST(RunSchedule, RefusesWhatHasNothingToGoOnFromOrNoRoom) {
  const RunConfig saved = settings();
  EXPECT_EQ(message_of<ConfigError>(
                [] { first_schedule(settings({"schedule.continue=keep"}), 1000); }),
            "[schedule] schedule.continue goes on from a checkpoint's schedule, and this "
            "run starts without a checkpoint; leave schedule.continue out, or name a "
            "checkpoint by checkpoint.resume");
  EXPECT_EQ(
      refusal(1000, saved, settings({"schedule.continue=decay", "run.steps=1500"})),
      "[schedule] continue = \"decay\" after step 1000, where the rate is 1e-05: it "
      "is not above schedule.min_lr = 1e-05, so nothing is left to decay");
  EXPECT_EQ(refusal(950, saved, settings({"schedule.continue=rewarm"})),
            "[schedule] continue = \"rewarm\" after step 950 with a warm-up of 100 steps "
            "leaves nothing of the 1000 steps up to the horizon; raise run.steps or "
            "schedule.horizon");
  EXPECT_EQ(refusal(900, saved,
                    settings({"schedule.continue=decay", "run.steps=2000",
                              "schedule.horizon=850", "schedule.min_lr=0"})),
            "[schedule] continue = \"decay\" after step 900 has no steps left to decay "
            "in, because the horizon is 850; raise run.steps or schedule.horizon");
  EXPECT_EQ(
      refusal(900, saved,
              settings({"schedule.continue=rewarm", "run.steps=2000",
                        "schedule.continue_fraction=0.005"})),
      "[schedule] continue_fraction = 0.005 of optimizer.lr = 0.001 is 5e-06, which "
      "is not above schedule.min_lr = 1e-05");
}

TEST(RunSchedule, OfAnImportedCheckpointBeginsAtZeroOrAsSet) {
  const RunConfig now = settings({"schedule.continue=rewarm", "run.steps=2000"});
  const RunSchedule schedule(imported_schedule(now, 2000, 1000));
  expect_value(schedule.lr(1001), 1e-3 / 101.0);
  EXPECT_EQ(RunSchedule(imported_schedule(settings(), 1000, 500)).lr(501),
            Schedule(settings().schedule, 1e-3, 1000).lr(501));
  for (const char* word : {"keep", "decay"}) {
    EXPECT_THROW(imported_schedule(settings({fmt::format("schedule.continue={}", word)}),
                                   2000, 1000),
                 ConfigError);
  }
}

TEST(RunSchedule, PointsShowTheShapeBetweenTwoSteps) {
  const RunConfig config = settings();
  const auto steps = [](const std::vector<RatePoint>& points) {
    std::vector<int64_t> out;
    for (const RatePoint& point : points) out.push_back(point.step);
    return out;
  };
  const RunSchedule schedule{plain(config)};
  EXPECT_EQ(steps(rate_points(schedule, 1, 1000)),
            (std::vector<int64_t>{1, 101, 250, 500, 750, 1000}));
  EXPECT_EQ(steps(rate_points(schedule, 600, 800)),
            (std::vector<int64_t>{600, 750, 800}));
  EXPECT_TRUE(rate_points(schedule, 1001, 1000).empty());
  const RunConfig now = settings({"schedule.continue=rewarm", "run.steps=2000"});
  EXPECT_EQ(steps(rate_points(after(1000, config, now), 1001, 2000)),
            (std::vector<int64_t>{1001, 1101, 1250, 1500, 1750, 2000}));
}

}  // namespace
}  // namespace longhaul::optim
