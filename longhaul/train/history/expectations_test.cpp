#include "longhaul/train/history/expectations.h"

#include <cmath>

#include "longhaul/base/error.h"
#include "longhaul/base/file.h"
#include "longhaul/run/events.h"
#include "tests/support/scratch_directory.h"

namespace longhaul::train {
namespace {

run::StepRecord judged_step(int64_t step, double tokens_per_s, double loss = 2.0) {
  run::StepRecord record;
  record.step = step;
  record.step_time = 1.0;
  record.tokens_per_s = tokens_per_s;
  record.loss = loss;
  return record;
}

RunSection asked_rate(double tokens_per_s, int64_t steps,
                      MissPolicy policy = MissPolicy::Stop) {
  RunSection settings;
  settings.expect = ExpectedRate{tokens_per_s, 0.05, steps, policy};
  return settings;
}

RunSection asked_losses(std::vector<GoldenLoss> golden,
                        MissPolicy policy = MissPolicy::Stop) {
  RunSection settings;
  settings.golden = GoldenLosses{{}, std::move(golden), 0.05, policy};
  return settings;
}

TEST(ExpectedThroughput, IsJudgedByTheMeanOfItsStepsWithoutTheFirst) {
  Expectations wanted(asked_rate(100.0, 3));
  EXPECT_TRUE(wanted.look(judged_step(1, 1.0), false).empty());  // warms up
  EXPECT_TRUE(wanted.look(judged_step(2, 95.0), false).empty());
  EXPECT_TRUE(wanted.look(judged_step(3, 95.0), false).empty());
  EXPECT_TRUE(wanted.look(judged_step(4, 95.5), false).empty());  // within 5% of 100
  const auto misses = wanted.look(judged_step(5, 94.0), false);
  ASSERT_EQ(misses.size(), 1U);
  EXPECT_TRUE(misses[0].stops);
  EXPECT_STREQ(misses[0].event, run::kTooSlowEvent);
  EXPECT_STREQ(misses[0].key, run::EndEvent::kByExpect);
  EXPECT_EQ(misses[0].fields.at("step"), 5);
  EXPECT_EQ(misses[0].fields.at("steps"), 3);
  EXPECT_DOUBLE_EQ(misses[0].fields.at("tokens_per_s").get<double>(),
                   (95.0 + 95.5 + 94.0) / 3.0);
  EXPECT_EQ(misses[0].why,
            "throughput 94.8333 tok/s, the mean of 3 steps, is below 95: run.expect asks "
            "for 100 less 5%");
}

TEST(ExpectedThroughput, OfAShortRunIsJudgedAtItsEnd) {
  Expectations wanted(asked_rate(100.0, 50));
  EXPECT_TRUE(wanted.look(judged_step(1, 10.0), false).empty());
  EXPECT_TRUE(wanted.look(judged_step(2, 90.0), false).empty());
  EXPECT_EQ(wanted.look(judged_step(3, 91.0), true).size(), 1U);
  Expectations one(asked_rate(100.0, 1));
  EXPECT_TRUE(one.look(judged_step(1, 10.0), false).empty());  // only warmed up
  Expectations only(asked_rate(100.0, 1));
  EXPECT_EQ(only.look(judged_step(1, 10.0), true).size(), 1U);  // no other step follows
}

TEST(ExpectedThroughput, ThatOnlyWarnsIsToldOnceForSoManySteps) {
  Expectations wanted(asked_rate(100.0, 2, MissPolicy::Warn));
  std::vector<int64_t> told;
  for (int64_t step = 1; step <= 8; ++step) {
    for (const Miss& miss : wanted.look(judged_step(step, 50.0), step == 8)) {
      EXPECT_FALSE(miss.stops);
      told.push_back(step);
    }
  }
  EXPECT_EQ(told, (std::vector<int64_t>{3, 5, 7}));
}

TEST(GoldenLosses, AreComparedAtTheirStepsWithinTheirTolerance) {
  Expectations wanted(asked_losses({{2, 4.0}, {4, 2.0}}));
  EXPECT_TRUE(wanted.look(judged_step(1, 0.0, 100.0), false).empty());
  EXPECT_TRUE(wanted.look(judged_step(2, 0.0, 4.19), false).empty());
  EXPECT_TRUE(wanted.look(judged_step(3, 0.0, 100.0), false).empty());
  const auto misses = wanted.look(judged_step(4, 0.0, 2.11), false);
  ASSERT_EQ(misses.size(), 1U);
  EXPECT_TRUE(misses[0].stops);
  EXPECT_STREQ(misses[0].event, run::kLossMissedEvent);
  EXPECT_STREQ(misses[0].key, run::EndEvent::kByGolden);
  EXPECT_EQ(misses[0].why,
            "the loss 2.11000 of step 4 is 5.50% from the golden loss 2.00000: "
            "run.golden allows 5%");
  EXPECT_EQ(wanted.summary(), "golden losses: 1 of 2 steps within 5% of run.golden");
}

TEST(GoldenLosses, ALossThatIsNotFiniteMisses) {
  Expectations wanted(asked_losses({{1, 4.0}}));
  const auto misses = wanted.look(judged_step(1, 0.0, NAN), false);
  ASSERT_EQ(misses.size(), 1U);
  EXPECT_TRUE(misses[0].fields.at("loss").is_null());
}

TEST(GoldenLosses, ThatOnlyWarnAreToldWhereTheyBeginToMiss) {
  Expectations wanted(
      asked_losses({{1, 2.0}, {2, 2.0}, {3, 2.0}, {4, 2.0}}, MissPolicy::Warn));
  std::vector<int64_t> told;
  const std::vector<double> had = {3.0, 3.0, 2.0, 3.0};
  for (int64_t step = 1; step <= 4; ++step) {
    const auto misses = wanted.look(judged_step(step, 0.0, had[step - 1]), false);
    if (!misses.empty()) told.push_back(step);
  }
  EXPECT_EQ(told, (std::vector<int64_t>{1, 4}));
  EXPECT_EQ(wanted.summary(), "golden losses: 1 of 4 steps within 5% of run.golden");
}

TEST(GoldenLosses, ComeFromTheFilesThatReportReads) {
  const TestDirectory dir;
  write_file(dir / "golden_steploss.txt", "# loss\n4.0\n3.0\n");
  RunSection settings;
  settings.golden = GoldenLosses{dir / "golden_steploss.txt", {}, 0.05, MissPolicy::Stop};
  Expectations wanted(settings);
  EXPECT_TRUE(wanted.look(judged_step(1, 0.0, 4.0), false).empty());
  EXPECT_EQ(wanted.look(judged_step(2, 0.0, 4.0), false).size(), 1U);
  EXPECT_HAS(wanted.summary(), "golden_steploss.txt");
  settings.golden->file = dir / "absent.txt";
  EXPECT_THROW(Expectations{settings}, Error);
  write_file(dir / "empty.txt", "\n");
  settings.golden->file = dir / "empty.txt";
  EXPECT_THROW(Expectations{settings}, InputError);
}

}  // namespace
}  // namespace longhaul::train
