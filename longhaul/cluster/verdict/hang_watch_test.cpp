#include "longhaul/cluster/verdict/hang_watch.h"

#include <gtest/gtest.h>

#include "longhaul/cluster/verdict/stragglers.h"

namespace longhaul::cluster {
namespace {

std::vector<ObservedRank> two(double age, const char* phase = "gradients",
                              int64_t steps = 9) {
  std::vector<ObservedRank> ranks(2);
  for (int r = 0; r < 2; ++r) {
    ranks[static_cast<size_t>(r)].rank = r;
    ranks[static_cast<size_t>(r)].phase = phase;
    ranks[static_cast<size_t>(r)].steps_done = steps;
    ranks[static_cast<size_t>(r)].progress_age = age;
    ranks[static_cast<size_t>(r)].place = run::Place{.dp = r};
  }
  return ranks;
}

TEST(HangWatch, BeforeAnythingIsLearnedItIsPatient) {
  HangWatch watch({});
  EXPECT_FALSE(watch.look(two(599.0)));
  EXPECT_EQ(watch.look(two(601.0)), 601.0);
}

TEST(HangWatch, LearnsFromPausesThatEndedByThemselves) {
  HangWatch watch({});
  watch.look(two(7.0));
  watch.look(two(0.1));  // the ranks went on
  EXPECT_EQ(watch.limit(WorkKind::Step), 35.0);
  EXPECT_FALSE(watch.look(two(34.0)));
  EXPECT_TRUE(watch.look(two(36.0)));
  // No save was seen yet, and short pauses do not shorten the limit below 10 s.
  EXPECT_EQ(watch.limit(WorkKind::Save), 600.0);
  HangWatch quick({});
  quick.look(two(0.1));
  quick.look(two(0.0));
  EXPECT_EQ(quick.limit(WorkKind::Step), 10.0);
}

TEST(HangWatch, StepsTooShortToHaveAnAgeTeachToo) {
  HangWatch watch({});
  watch.look(two(0.0, "gradients", 3));
  EXPECT_EQ(watch.limit(WorkKind::Step), 600.0);
  watch.look(two(0.0, "gradients", 5));
  EXPECT_EQ(watch.limit(WorkKind::Step), 10.0);
  EXPECT_EQ(watch.look(two(11.0, "update", 5)), 11.0);
  // The first look after a restart teaches nothing, and what was learned before stays.
  HangWatch other({});
  other.look(two(0.0, "gradients", 3));
  other.restart();
  other.look(two(0.0, "gradients", 4));
  EXPECT_EQ(other.limit(WorkKind::Step), 600.0);
  watch.restart();
  EXPECT_EQ(watch.limit(WorkKind::Step), 10.0);
}

TEST(HangWatch, LearnsOfSavesAndValidationsThatNoLookHasSeen) {
  HangWatch watch({});
  auto ranks = two(0.1);
  ranks[0].longest_phases = {{"checkpoint", 0.2}, {"validation", 7.0}};
  ranks[1].longest_phases = {{"checkpoint", 0.1}};
  EXPECT_FALSE(watch.look(ranks));
  EXPECT_EQ(watch.limit(WorkKind::Save), 60.0);
  EXPECT_EQ(watch.limit(WorkKind::Validation), 35.0);
  EXPECT_EQ(watch.limit(WorkKind::Step), 600.0);
  // A restart keeps what was learned.
  watch.restart();
  EXPECT_TRUE(watch.look(two(61.0, "checkpoint")));
  EXPECT_FALSE(watch.look(two(59.0, "checkpoint")));
}

TEST(HangWatch, AWaitForASaveMayTakeFiveTimesTheLongestSave) {
  HangWatch watch({});
  EXPECT_EQ(watch.limit(WorkKind::SaveWait), 600.0);
  auto ranks = two(0.1);
  ranks[1].longest_phases = {{"checkpoint", 0.2}, {"checkpoint wait", 30.0}};
  EXPECT_FALSE(watch.look(ranks));
  EXPECT_EQ(watch.limit(WorkKind::Save), 60.0);
  EXPECT_FALSE(watch.look(two(149.0, "checkpoint wait")));
  EXPECT_TRUE(watch.look(two(151.0, "checkpoint wait")));
  // The last bytes become durable without a sign, so a given limit is never shorter.
  HangWatch given({.quiet_seconds = 3.0});
  EXPECT_TRUE(given.look(two(3.5, "checkpoint wait")));
  given.look(ranks);
  EXPECT_FALSE(given.look(two(149.0, "checkpoint wait")));
}

TEST(HangWatch, AStartThatNoRankComesOutOfIsAHang) {
  HangWatch watch({});
  EXPECT_FALSE(watch.look({}, 599.0));
  EXPECT_EQ(watch.look({}, 601.0), 601.0);
  // A start that succeeded says how long the next one may take.
  HangWatch learned({});
  EXPECT_FALSE(learned.look({}, 4.0));
  EXPECT_FALSE(learned.look(two(0.1, "start", 0), 4.5));
  learned.restart();
  EXPECT_FALSE(learned.look({}, 79.0));
  EXPECT_EQ(learned.look({}, 81.0), 81.0);
}

TEST(HangWatch, OneRankThatMovesIsEnough) {
  HangWatch watch({.quiet_seconds = 5.0});
  auto ranks = two(100.0);
  ranks[1].progress_age = 1.0;
  EXPECT_FALSE(watch.look(ranks));
}

TEST(HangWatch, AGivenLimitHoldsForAllButAStart) {
  HangWatch watch({.quiet_seconds = 3.0});
  EXPECT_TRUE(watch.look(two(3.5)));
  EXPECT_TRUE(watch.look(two(3.5, "checkpoint")));
  EXPECT_FALSE(watch.look(two(3.5, "start", 0)));
}

TEST(Stragglers, ARankThatWorksLongerIsNamedOnceAfterThreeLooks) {
  Stragglers stragglers(1.3);
  auto ranks = two(0.0);
  ranks[0].busy_seconds = 1.0;
  ranks[1].busy_seconds = 1.5;
  double now = 100.0;
  EXPECT_TRUE(stragglers.look(ranks, now += 3.0).empty());
  EXPECT_TRUE(stragglers.look(ranks, now += 3.0).empty());
  EXPECT_TRUE(
      stragglers.look(ranks, now + 0.1).empty());  // too early for a look that counts
  const auto found = stragglers.look(ranks, now += 3.0);
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(found[0].rank, 1);
  EXPECT_DOUBLE_EQ(found[0].ratio, 1.5);
  EXPECT_TRUE(stragglers.look(ranks, now += 3.0).empty());
}

TEST(Stragglers, StagesOfAPipelineAreNotCompared) {
  Stragglers stragglers(1.3);
  auto ranks = two(0.0);
  ranks[1].place = run::Place{.pp = 1};
  ranks[0].busy_seconds = 1.0;
  ranks[1].busy_seconds = 9.0;
  for (int i = 1; i < 9; ++i) EXPECT_TRUE(stragglers.look(ranks, 10.0 * i).empty());
}

}  // namespace
}  // namespace longhaul::cluster
