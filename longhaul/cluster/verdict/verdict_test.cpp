#include "longhaul/cluster/verdict/verdict.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <random>

namespace longhaul::cluster {
namespace {

/// Returns the ranks of pp 2 x dp 2 x tp 2. Every rank waits in the all_reduce of this
/// number on 'dp'.
std::vector<ObservedRank> all_in_dp(int64_t number) {
  std::vector<ObservedRank> ranks(8);
  for (int r = 0; r < 8; ++r) {
    ObservedRank& rank = ranks[static_cast<size_t>(r)];
    rank.rank = r;
    rank.world = 8;
    rank.node = fmt::format("n{}", r / 2 + 1);
    rank.place = {.pp = r / 4, .dp = r / 2 % 2, .tp = r % 2};
    rank.step = 12;
    rank.phase = "gradients";
    rank.waits = true;
    rank.waits_group = "dp";
    rank.waits_verb = "all_reduce";
    rank.waits_number = number;
    rank.waits_for = fmt::format("all_reduce number {} (4096 bytes) on 'dp'", number);
    rank.waits_age = 64.0 + r;
    rank.entered = {{"dp", number}, {"tp", 100}};
  }
  return ranks;
}

void in_no_collective(ObservedRank& rank, int64_t entered) {
  rank.waits = false;
  rank.waits_group.clear();
  rank.waits_for.clear();
  rank.progress_age = 70.0;
  rank.entered["dp"] = entered;
}

TEST(HangVerdict, ARankThatHasNotEnteredIsNamedWithWhatTheOthersWaitIn) {
  auto ranks = all_in_dp(7);
  in_no_collective(ranks[5], 6);
  const HangVerdict verdict = judge_hang(ranks);
  EXPECT_EQ(verdict.ranks, std::vector<int>{5});
  // The verdict reports the wait of rank 7, which is in the dp group of rank 5.
  EXPECT_EQ(
      verdict.text,
      "rank 5 on n3 (pp 1 dp 0 cp 0 tp 1) has not entered all_reduce number 7 (4096 "
      "bytes) on 'dp'; 7 others wait for 71 s; it is in no collective for 70 s, "
      "step 12 phase gradients");
}

TEST(HangVerdict, AStoppedRankIsNamedAlthoughItsRecordSaysThatItWaits) {
  auto ranks = all_in_dp(7);
  ranks[2].waits_number = 6;
  ranks[2].process = ProcessState::Stopped;
  const HangVerdict verdict = judge_hang(ranks);
  EXPECT_EQ(verdict.ranks, std::vector<int>{2});
  EXPECT_NE(verdict.text.find("it is stopped by a signal"), std::string::npos)
      << verdict.text;
}

TEST(HangVerdict, OneThatIsBehindInAnotherCollectiveIsNamedAndNotThoseWhoWaitForIt) {
  // Rank 1 hangs. Its neighbour 0 waits for it in tp, and rank 2 waits for rank 0 in dp.
  auto ranks = all_in_dp(7);
  in_no_collective(ranks[1], 6);
  ranks[1].entered["tp"] = 100;
  ranks[0].waits_group = "tp";
  ranks[0].waits_number = 101;
  ranks[0].waits_for = "all_gather number 101 (64 bytes) on 'tp'";
  ranks[0].entered["dp"] = 6;
  EXPECT_EQ(judge_hang(ranks).ranks, std::vector<int>{1});
}

TEST(HangVerdict, AllWaitAndOneIsBehind) {
  auto ranks = all_in_dp(7);
  ranks[6].waits_number = 6;  // waits in the collective that all others have left
  ranks[6].entered["dp"] = 6;
  EXPECT_EQ(judge_hang(ranks).ranks, std::vector<int>{6});
}

TEST(HangVerdict, TransfersPointAtTheStagesBeside) {
  auto ranks = all_in_dp(7);
  for (ObservedRank& rank : ranks) {
    rank.waits_group = "pp";
    rank.waits_verb = "send_recv";
    rank.waits_for = "send_recv number 3 (64 bytes) on 'pp'";
  }
  in_no_collective(ranks[4], 6);
  EXPECT_EQ(judge_hang(ranks).ranks, std::vector<int>{4});
}

/// Returns the ranks of all_in_dp(), each of which waits in a transfer of rows instead.
std::vector<ObservedRank> all_in_ep() {
  auto ranks = all_in_dp(7);
  for (ObservedRank& rank : ranks) {
    rank.waits_group = "ep";
    rank.waits_verb = "send_recv";
    rank.waits_for = "send_recv number 3 (64 bytes) on 'ep'";
  }
  return ranks;
}

TEST(HangVerdict, RowsOfExpertsPointAtRanksOfTheSameStage) {
  auto ranks = all_in_ep();
  // The second stage computes, and no rank waits for the second stage.
  for (const size_t r : {4, 5, 6, 7}) in_no_collective(ranks[r], 7);
  in_no_collective(ranks[2], 7);
  EXPECT_EQ(judge_hang(ranks).ranks, std::vector<int>{2});
}

TEST(HangVerdict, RowsOfExpertsThatAllWaitForPointAtTheNetwork) {
  const HangVerdict verdict = judge_hang(all_in_ep());
  EXPECT_TRUE(verdict.ranks.empty());
  EXPECT_NE(verdict.text.find("look at the network"), std::string::npos) << verdict.text;
}

TEST(HangVerdict, AHangInAGroupOfEachKindNamesTheMemberThatHasNotEntered) {
  constexpr size_t kHung = 5;
  for (int k = 0; k < run::kGroupKinds; ++k) {
    const auto kind = static_cast<run::GroupKind>(k);
    const std::string group = run::group_name(kind);
    SCOPED_TRACE(group);
    std::vector<ObservedRank> ranks(16);
    for (int r = 0; r < 16; ++r) {
      ObservedRank& rank = ranks[static_cast<size_t>(r)];
      rank.rank = r;
      rank.place = {.pp = r / 8, .dp = r / 4 % 2, .cp = r / 2 % 2, .tp = r % 2};
      rank.entered = {{group, 6}};
    }
    const auto meeting = [&](size_t r) {
      return run::without(*ranks[r].place, run::axes_of(kind));
    };
    size_t waiting = 0;
    for (size_t r = 0; r < ranks.size(); ++r) {
      if (r == kHung || meeting(r) != meeting(kHung)) continue;
      ++waiting;
      ranks[r].waits = true;
      ranks[r].waits_group = group;
      ranks[r].waits_verb = "all_reduce";
      ranks[r].waits_number = 7;
      ranks[r].entered[group] = 7;
    }
    EXPECT_EQ(waiting, run::axes_of(kind) == run::kDataAxes ? 3U : 1U);
    // Ranks of other groups compute, and nobody waits for these.
    EXPECT_EQ(judge_hang(ranks).ranks, std::vector<int>{kHung});
  }
}

TEST(HangVerdict, AStageBetweenTheEndsIsNoMemberOfATiedGroup) {
  constexpr int kStages = 4;
  std::vector<ObservedRank> ranks(kStages);
  for (int r = 0; r < kStages; ++r) {
    ranks[static_cast<size_t>(r)].rank = r;
    ranks[static_cast<size_t>(r)].place = {.pp = r};
  }
  ranks[0].waits = true;
  ranks[0].waits_group = "tied";
  ranks[0].waits_verb = "all_reduce";
  ranks[0].waits_number = 7;
  // The two stages between the ends are busy, and nobody waits for these.
  EXPECT_EQ(judge_hang(ranks).ranks, std::vector<int>{kStages - 1});
}

TEST(HangVerdict, WhereAllHaveEnteredTheNetworkIsToBeLookedAt) {
  const HangVerdict verdict = judge_hang(all_in_dp(7));
  EXPECT_TRUE(verdict.ranks.empty());
  EXPECT_NE(verdict.text.find("look at the network"), std::string::npos) << verdict.text;
}

TEST(HangVerdict, RanksThatWaitForEachOtherAreACircle) {
  auto ranks = all_in_dp(7);
  ranks.resize(2);
  ranks[0].waits_group = "tp";
  ranks[0].waits_number = 101;
  ranks[0].entered = {{"world", 3}, {"tp", 101}};
  ranks[1].waits_group = "world";
  ranks[1].waits_number = 4;
  ranks[1].entered = {{"world", 4}, {"tp", 100}};
  const HangVerdict verdict = judge_hang(ranks);
  EXPECT_TRUE(verdict.ranks.empty());
  EXPECT_NE(verdict.text.find("their calls differ"), std::string::npos) << verdict.text;
}

/// Returns the ranks of pp 2 x dp 3 x tp 2, in which each rank waits in a random
/// collective or in none.
std::vector<ObservedRank> at_random(std::mt19937& random) {
  const auto below = [&](int end) { return static_cast<int>(random() % end); };
  std::vector<ObservedRank> ranks(12);
  const int lazy = below(3);
  for (int r = 0; r < 12; ++r) {
    ObservedRank& rank = ranks[static_cast<size_t>(r)];
    rank.rank = r;
    if (below(10) > 0) {
      rank.place = {.pp = r / 6, .dp = r / 2 % 3, .tp = r % 2};
    }
    for (const char* group : {"dp", "tp", "pp", "data", "world"}) {
      if (below(4) > 0) rank.entered[group] = 3 + below(2);
    }
    if (r < lazy) continue;
    rank.waits = true;
    rank.waits_group = std::array{"dp", "tp", "pp", "data", "world"}[random() % 5];
    rank.waits_verb = rank.waits_group == "pp" ? "send_recv" : "all_reduce";
    rank.waits_number = 3 + below(2);
    rank.waits_for = rank.waits_group;
  }
  return ranks;
}

/// Returns whether `from` waits for `to`, by the definition of waiting for a pair of
/// ranks.
bool waits_for(const ObservedRank& from, const ObservedRank& to) {
  if (!from.waits || from.rank == to.rank) return false;
  const std::string& group = from.waits_group;
  const bool transfer = from.waits_verb == "send_recv";
  if (from.place && to.place) {
    const bool pp = from.rank / 6 == to.rank / 6;
    const bool dp = from.rank / 2 % 3 == to.rank / 2 % 3;
    const bool tp = from.rank % 2 == to.rank % 2;
    if (group == "dp" && !(pp && tp)) return false;
    if (group == "tp" && !(pp && dp)) return false;
    if (group == "pp" && !(dp && tp)) return false;
    if (group == "data" && !(pp && tp)) return false;
    if (transfer) return !pp;
  }
  if (transfer) return true;
  if (to.waits && to.waits_group == group && to.waits_verb != "send_recv") {
    return to.waits_number < from.waits_number;
  }
  const auto entered = to.entered.find(group);
  return entered == to.entered.end() || entered->second < from.waits_number;
}

TEST(HangVerdict, IsThatOfComparingEachRankWithEachOther) {
  std::mt19937 random(1);
  for (int round = 0; round < 2000; ++round) {
    const auto ranks = at_random(random);
    std::vector<int> idle;
    std::vector<int> idle_awaited;
    std::vector<int> awaited_only;
    for (const ObservedRank& rank : ranks) {
      const bool awaited = std::ranges::any_of(
          ranks, [&](const ObservedRank& other) { return waits_for(other, rank); });
      const bool points = std::ranges::any_of(
          ranks, [&](const ObservedRank& other) { return waits_for(rank, other); });
      if (!rank.waits) idle.push_back(rank.rank);
      if (!rank.waits && awaited) idle_awaited.push_back(rank.rank);
      if (rank.waits && awaited && !points) awaited_only.push_back(rank.rank);
    }
    const std::vector<int>& expected = !idle_awaited.empty() ? idle_awaited
                                       : !idle.empty()       ? idle
                                                             : awaited_only;
    ASSERT_EQ(judge_hang(ranks).ranks, expected) << "round " << round;
  }
}

// A comparison in pairs would take minutes.
TEST(HangVerdict, OfTensOfThousandsOfRanksTakesOneLook) {
  constexpr int kRanks = 32'768;
  auto ranks = std::vector<ObservedRank>(kRanks, all_in_dp(7).front());
  for (int r = 0; r < kRanks; ++r) {
    ObservedRank& rank = ranks[static_cast<size_t>(r)];
    rank.rank = r;
    rank.place = {.dp = r / 8, .tp = r % 8};
  }
  EXPECT_TRUE(judge_hang(ranks).ranks.empty());
  ranks[4711].waits_group = "tp";
  ranks[4711].waits_number = 100;
  ranks[4711].entered["dp"] = 6;
  EXPECT_EQ(judge_hang(ranks).ranks, std::vector<int>{4711});
}

}  // namespace
}  // namespace longhaul::cluster
