#include "longhaul/cluster/verdict/fault.h"

#include <gtest/gtest.h>

#include "longhaul/cluster/fleet/job_step.h"
#include "longhaul/cluster/record/restart_policy.h"

namespace longhaul::cluster {
namespace {

ObservedRank rank(int number) {
  ObservedRank one;
  one.rank = number;
  one.node = number < 2 ? "n1" : "n2";
  one.step = 12;
  one.phase = "update";
  return one;
}

std::vector<ObservedRank> four() { return {rank(0), rank(1), rank(2), rank(3)}; }

void say(ObservedRank& one, const std::string& failure, int exit_code) {
  one.failure = failure;
  one.exit_code = exit_code;
}

void kill(ObservedRank& one, double gone_age) {
  one.process = ProcessState::Gone;
  one.gone_age = gone_age;
}

TEST(FindFault, NothingIsWrongWithRanksThatWork) {
  EXPECT_FALSE(find_fault(four(), {}));
  EXPECT_FALSE(find_fault(four(), LauncherEnd{.exit_code = 0}));
  // A run that was stopped by a signal or the file STOP, and has saved, has no fault.
  for (const int code : {75, 79}) {
    auto ranks = four();
    for (ObservedRank& one : ranks) one.exit_code = code;
    EXPECT_FALSE(find_fault(ranks, LauncherEnd{.exit_code = code}));
  }
}

TEST(FindFault, AKillForWantOfMemoryNamesTheLimitAndTheKills) {
  auto ranks = four();
  kill(ranks[2], 0.4);
  ranks[2].memory_kills = 2;
  ranks[2].memory_limit = 8'000'000'000;
  const auto fault =
      find_fault(ranks, LauncherEnd{.exit_code = 137, .signals = {{2, 9}}});
  ASSERT_TRUE(fault);
  EXPECT_EQ(fault->kind, FaultKind::Killed);
  EXPECT_EQ(fault->text,
            "rank 2 on n2 killed by signal 9 in step 12 phase update: out of memory (its "
            "cgroup's limit of 8.0 GB), so the kernel has killed 2 processes there; "
            "raise the limit (Slurm: --mem=0 or --mem-per-cpu, a container: --memory), "
            "or use a "
            "smaller batch.micro_size or more ranks on more machines");
}

TEST(FindFault, ALauncherThatToldWhyIsHeardBeforeItsLastLine) {
  const auto fault = find_fault(
      std::vector<ObservedRank>{},
      LauncherEnd{.exit_code = 1, .last_line = "continue.", .cause = "no interface"});
  ASSERT_TRUE(fault);
  EXPECT_EQ(
      fault->text,
      "the launcher ended with exit code 1 before any rank had begun: no interface");
}

TEST(FindFault, ADeathWithoutAWordComesBeforeThoseWhoWaitedForIt) {
  auto ranks = four();
  kill(ranks[2], 0.4);
  say(ranks[0], "[comm] step 12: all_reduce number 3, did not end", 75);
  say(ranks[1], "[comm] mpirun ends the job (SIGTERM): another rank has died", 75);
  LauncherEnd end{.exit_code = 137, .signals = {{2, 9}}};
  const auto fault = find_fault(ranks, end);
  ASSERT_TRUE(fault);
  EXPECT_EQ(fault->kind, FaultKind::Killed);
  EXPECT_EQ(fault->rank, 2);
  EXPECT_EQ(fault->node, "n2");
  EXPECT_EQ(fault->step, 12);
  EXPECT_EQ(fault->text, "rank 2 on n2 killed by signal 9 in step 12 phase update");
}

TEST(FindFault, OfSeveralDeathsTheFirstIsTheCause) {
  auto ranks = four();
  kill(ranks[0], 0.1);
  kill(ranks[3], 1.1);
  EXPECT_EQ(find_fault(ranks, {})->rank, 3);
}

TEST(FindFault, AnErrorOfItsOwnComesBeforeTheDeathsThatItBrought) {
  auto ranks = four();
  say(ranks[1], "[numerics] step 12: loss nan", 1);
  kill(ranks[0], 2.0);
  const auto fault = find_fault(ranks, {});
  EXPECT_EQ(fault->kind, FaultKind::Error);
  EXPECT_EQ(fault->rank, 1);
}

TEST(FindFault, AWrongSettingComesFirst) {
  auto ranks = four();
  kill(ranks[0], 2.0);
  say(ranks[3], "[data] no such file", 78);
  EXPECT_EQ(find_fault(ranks, {})->kind, FaultKind::Settings);
}

TEST(FindFault, WhereAllOnlyGaveUpWaitingThatIsSaid) {
  auto ranks = four();
  for (ObservedRank& one : ranks) say(one, "[comm] did not end within 600 s", 75);
  EXPECT_EQ(find_fault(ranks, {})->kind, FaultKind::Communication);
}

TEST(FindFault, ALauncherThatFailsBeforeAnyRankIsNamedWithItsLastLine) {
  const LauncherEnd end{.exit_code = 1, .signals = {}, .last_line = "no slots"};
  const auto fault = find_fault({}, end);
  EXPECT_EQ(fault->kind, FaultKind::Launcher);
  EXPECT_EQ(fault->text,
            "the launcher ended with exit code 1 before any rank had begun: no slots");
}

TEST(FindFault, OnlyAnErrorThatTimeMayMendIsTemporary) {
  const auto temporary = [](const std::string& failure, int exit_code) {
    auto ranks = four();
    say(ranks[0], failure, exit_code);
    return find_fault(ranks, {})->temporary;
  };
  EXPECT_TRUE(
      temporary("[checkpoint] step 12 was not saved: No space left on device", 75));
  EXPECT_FALSE(temporary("[corruption] step 12: ranks do not hold the same bits", 75));
  EXPECT_FALSE(temporary("[numerics] step 12: loss nan", 1));
  EXPECT_FALSE(temporary("[comm] did not end within 600 s", 75));
}

constexpr const char* kNotSaved =
    "[checkpoint] step 12 was not saved: rank 2: [file] write: Disk quota exceeded";

TEST(FindFault, AFailedSaveIsOfTheRankThatItNamesWhoeverEndsFirst) {
  for (int first = 0; first < 4; ++first) {
    auto ranks = four();
    for (ObservedRank& one : ranks) {
      say(one, kNotSaved, 75);
      one.told = one.rank != 2;
    }
    kill(ranks[static_cast<size_t>(first)], 3.0);
    const auto fault = find_fault(ranks, {});
    ASSERT_TRUE(fault);
    EXPECT_EQ(fault->kind, FaultKind::Error);
    EXPECT_EQ(fault->rank, 2);
    EXPECT_EQ(fault->node, "n2");
    EXPECT_TRUE(fault->temporary && fault->of_node);
  }
}

TEST(FindFault, WhatTheRanksOfMostNodesHaveIsOfNoNode) {
  auto ranks = four();
  for (ObservedRank& one : ranks) say(one, kNotSaved, 75);
  kill(ranks[3], 3.0);
  EXPECT_FALSE(find_fault(ranks, {})->of_node);
  EXPECT_EQ(find_fault(ranks, {})->rank, 0);
  for (ObservedRank& one : ranks) one.node = "n1";
  ranks[0].told = true;
  EXPECT_FALSE(find_fault(ranks, {})->of_node);
}

TEST(FindFault, RanksThatFoundAnotherOnesCorruptionAreNotBlamedForIt) {
  auto ranks = four();
  for (ObservedRank& one : ranks) {
    say(one, "[corruption] step 12: ranks do not hold the same bits: rank 3", 75);
    one.told = one.rank != 3;
  }
  kill(ranks[0], 3.0);
  EXPECT_EQ(find_fault(ranks, {})->rank, 3);
  EXPECT_FALSE(find_fault(ranks, {})->temporary);
}

TEST(KilledRank, IsReadFromWhatLaunchersSay) {
  EXPECT_EQ(
      killed_rank("mpirun noticed that process rank 17 with PID 0 on node n2 exited "
                  "on signal 9 (Killed)."),
      std::pair(17, 9));
  EXPECT_EQ(killed_rank("srun: error: n2: task 3: Killed"), std::pair(3, 9));
  EXPECT_EQ(killed_rank("srun: error: n2: tasks 2-3: Segmentation fault (core dumped)"),
            std::pair(-1, 11));
  EXPECT_FALSE(killed_rank("srun: error: n2: task 3: Exited with exit code 78"));
  EXPECT_FALSE(killed_rank("step 3 loss 1.0"));
}

TEST(FailedRank, IsReadWithItsNodeFromWhatSrunSays) {
  const auto one = failed_rank("srun: error: n2: task 3: Exited with exit code 78");
  ASSERT_TRUE(one);
  EXPECT_EQ(one->first, 3);
  EXPECT_EQ(one->second.node, "n2");
  EXPECT_EQ(one->second.code, 78);
  const auto many = failed_rank("srun: error: n12: tasks 4-5,9: Exited with exit code 2");
  ASSERT_TRUE(many);
  EXPECT_EQ(many->first, 4);
  EXPECT_FALSE(failed_rank("srun: error: n2: task 3: Killed"));
  EXPECT_FALSE(failed_rank("srun: error: Unable to create step for job 7"));
}

TEST(FindFault, ARankWithoutARecordThatEndedWithAnErrorComesBeforeThoseKilledForIt) {
  auto ranks = four();
  ranks.erase(ranks.begin() + 2);
  kill(ranks[0], 2.0);
  const LauncherEnd end{.exit_code = 2, .signals = {{0, 9}}, .exits = {{2, {"n2", 2}}}};
  const auto fault = find_fault(ranks, end);
  ASSERT_TRUE(fault);
  EXPECT_EQ(fault->kind, FaultKind::Error);
  EXPECT_EQ(fault->node, "n2");
  EXPECT_EQ(fault->rank, 2);
  EXPECT_EQ(fault->step, 12);
  EXPECT_EQ(fault->text, "rank 2 on n2 ended with exit code 2 before it began");
}

TEST(FindFault, ARankThatHasARecordIsJudgedByIt) {
  auto ranks = four();
  say(ranks[1], "[numerics] step 12: loss nan", 1);
  const LauncherEnd end{.exit_code = 1, .exits = {{1, {"n1", 1}}, {9, {"n9", 1}}}};
  EXPECT_EQ(find_fault(ranks, end)->rank, 1);
}

TEST(FindFault, RanksThatWereAskedToStopBeforeTheyHadARecordHaveNoFault) {
  EXPECT_FALSE(find_fault({}, LauncherEnd{.exit_code = 75, .exits = {{0, {"n1", 75}}}}));
}

TEST(FindFault, ACrashBeforeAnyRecordIsADeathAndNoFaultOfTheLauncher) {
  const LauncherEnd crash{.exit_code = 139, .signals = {{-1, 11}}};
  EXPECT_EQ(find_fault({}, crash)->kind, FaultKind::Killed);
  // The signals 9 and 15 may come from the end of ranks that were left.
  const LauncherEnd ended{.exit_code = 137, .signals = {{-1, 9}}};
  EXPECT_EQ(find_fault({}, ended)->kind, FaultKind::Launcher);
}

Fault fault(FaultKind kind, int64_t step, const char* node = "n1") {
  return {.kind = kind, .rank = 0, .node = node, .step = step, .text = "x"};
}

TEST(RestartPolicy, AWrongSettingIsNeverRetried) {
  RestartPolicy policy({});
  const Decision decision = policy.decide(fault(FaultKind::Settings, 0));
  EXPECT_FALSE(decision.restart);
  EXPECT_FALSE(decision.exclude_node);
  EXPECT_EQ(policy.restarts(), 0);
}

TEST(RestartPolicy, WhatDiesBeforeItsFirstStepIsOneKindOfFault) {
  RestartPolicy policy({});
  EXPECT_TRUE(policy.decide(fault(FaultKind::Killed, 40)).restart);
  EXPECT_TRUE(policy.decide(fault(FaultKind::Killed, 0)).restart);
  EXPECT_TRUE(policy.decide(fault(FaultKind::Error, 0)).restart);
  EXPECT_FALSE(policy.decide(fault(FaultKind::Killed, 0)).restart);
}

TEST(RestartPolicy, TheSameFaultAtTheSameStepStopsTheThirdTime) {
  RestartPolicy policy({});
  EXPECT_TRUE(policy.decide(fault(FaultKind::Error, 12)).restart);
  EXPECT_TRUE(policy.decide(fault(FaultKind::Error, 12)).restart);
  const Decision decision = policy.decide(fault(FaultKind::Error, 12));
  EXPECT_FALSE(decision.restart);
  EXPECT_NE(decision.reason.find("at step 12 for the 3. time"), std::string::npos);
}

TEST(RestartPolicy, AFullDiskIsWaitedForAndBlamesNoNode) {
  RestartPolicy policy({});
  Fault full = fault(FaultKind::Error, 12);
  full.temporary = true;
  double waited = 0.0;
  for (int i = 0; i < 19; ++i) {
    const Decision decision = policy.decide(full);
    ASSERT_TRUE(decision.restart) << i;
    EXPECT_FALSE(decision.exclude_node);
    waited += decision.delay_seconds;
  }
  EXPECT_NEAR(waited, 15 * 60.0, 120.0);
  EXPECT_FALSE(policy.decide(full).restart);
}

TEST(RestartPolicy, ANodeThatAloneCannotWriteIsLeftOutTheThirdTime) {
  RestartPolicy policy({});
  Fault quota = fault(FaultKind::Error, 12, "n2");
  quota.temporary = quota.of_node = true;
  EXPECT_FALSE(policy.decide(quota).exclude_node);
  EXPECT_FALSE(policy.decide(quota).exclude_node);
  EXPECT_TRUE(policy.decide(quota).exclude_node);
}

TEST(RestartPolicy, WhatFailsOnTheNextNodeTooCostsNoSecondNodeBeforeAStepIsGained) {
  RestartPolicy policy({});
  const auto excluded = [&](const char* node, int64_t step) {
    Fault quota = fault(FaultKind::Error, step, node);
    quota.temporary = quota.of_node = true;
    return policy.decide(quota).exclude_node;
  };
  for (int i = 0; i < 3; ++i) EXPECT_EQ(excluded("n2", 12), i == 2);
  for (int i = 0; i < 5; ++i) EXPECT_FALSE(excluded("n3", 12));
  // If the run has gone on since, the next fault is another one.
  for (int i = 0; i < 3; ++i) EXPECT_EQ(excluded("n3", 40), i == 2);
}

TEST(RestartPolicy, ALauncherThatHasWorkedBeforeIsTriedAgainForAWhile) {
  RestartPolicy never({});
  for (int i = 0; i < 2; ++i) {
    EXPECT_TRUE(never.decide(fault(FaultKind::Launcher, 0, "")).restart);
  }
  EXPECT_FALSE(never.decide(fault(FaultKind::Launcher, 0, "")).restart);
  RestartPolicy once({});
  EXPECT_TRUE(once.decide(fault(FaultKind::Killed, 12)).restart);
  for (int i = 0; i < 19; ++i) {
    ASSERT_TRUE(once.decide(fault(FaultKind::Launcher, 0, "")).restart) << i;
  }
  EXPECT_FALSE(once.decide(fault(FaultKind::Launcher, 0, "")).restart);
}

TEST(RestartPolicy, FaultsAtOtherStepsOrOfOtherKindsGoOn) {
  RestartPolicy policy({});
  for (int i = 0; i < 20; ++i) {
    EXPECT_TRUE(policy.decide(fault(FaultKind::Killed, 12 + i)).restart);
  }
  for (int i = 0; i < 20; ++i) {
    const auto kind = i % 2 == 0 ? FaultKind::Killed : FaultKind::Hang;
    EXPECT_TRUE(policy.decide(fault(kind, 40, i % 3 == 0 ? "n1" : "n2")).restart);
  }
}

TEST(RestartPolicy, ALostNodeIsLeftOutAndDoesNotCountAsTheSameFault) {
  RestartPolicy policy({});
  for (const char* node : {"n1", "n2", "n3", "n4"}) {
    const Decision decision = policy.decide(fault(FaultKind::Node, 12, node));
    EXPECT_TRUE(decision.restart);
    EXPECT_TRUE(decision.exclude_node);
  }
}

TEST(RestartPolicy, ANodeWithThreeFaultsInARowIsLeftOut) {
  RestartPolicy policy({});
  EXPECT_FALSE(policy.decide(fault(FaultKind::Killed, 1, "n2")).exclude_node);
  EXPECT_FALSE(policy.decide(fault(FaultKind::Hang, 2, "n2")).exclude_node);
  EXPECT_TRUE(policy.decide(fault(FaultKind::Killed, 3, "n2")).exclude_node);
}

TEST(RestartPolicy, ItWaitsLongerOnlyWhereNothingIsGained) {
  RestartPolicy policy({});
  EXPECT_EQ(policy.decide(fault(FaultKind::Killed, 5)).delay_seconds, 0.0);
  EXPECT_EQ(policy.decide(fault(FaultKind::Hang, 5)).delay_seconds, 1.0);
  EXPECT_EQ(policy.decide(fault(FaultKind::Killed, 4)).delay_seconds, 2.0);
  EXPECT_EQ(policy.decide(fault(FaultKind::Killed, 9)).delay_seconds, 0.0);
}

TEST(RestartPolicy, RestartsAreCounted) {
  RestartPolicy policy({.max_restarts = 2});
  EXPECT_TRUE(policy.decide(fault(FaultKind::Killed, 1)).restart);
  EXPECT_TRUE(policy.decide(fault(FaultKind::Killed, 2)).restart);
  EXPECT_FALSE(policy.decide(fault(FaultKind::Killed, 3)).restart);
}

}  // namespace
}  // namespace longhaul::cluster
