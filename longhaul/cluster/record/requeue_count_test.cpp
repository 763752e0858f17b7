#include "longhaul/cluster/record/requeue_count.h"

#include <gtest/gtest.h>

#include <cstdlib>

#include "tests/support/scratch_directory.h"

namespace longhaul::cluster {
namespace {

constexpr RequeueReason kNodes = RequeueReason::Nodes;

TEST(RequeueCount, RequeuesInVainWaitLongerAndEndAfterTwenty) {
  const TestDirectory dir;
  std::vector<double> waits;
  for (int i = 0; i < 20; ++i) {
    const RequeueDecision decision = count_requeue(dir.path(), "7", 10, kNodes);
    ASSERT_TRUE(decision.allowed) << i;
    waits.push_back(decision.wait_seconds);
  }
  EXPECT_EQ(std::vector<double>(waits.begin(), waits.begin() + 5),
            (std::vector<double>{0, 0, 30, 60, 120}));
  EXPECT_EQ(waits.back(), 1800.0);
  const RequeueDecision last = count_requeue(dir.path(), "7", 10, kNodes);
  EXPECT_FALSE(last.allowed);
  EXPECT_NE(last.reason.find("job 7 went back to the queue 20 times"), std::string::npos);
}

TEST(RequeueCount, ANewerCheckpointOrAnotherJobBeginsTheCountAnew) {
  const TestDirectory dir;
  for (int i = 0; i < 20; ++i) count_requeue(dir.path(), "7", 10, kNodes);
  EXPECT_EQ(count_requeue(dir.path(), "7", 11, kNodes).wait_seconds, 0.0);
  for (int i = 0; i < 20; ++i) count_requeue(dir.path(), "7", 11, kNodes);
  EXPECT_FALSE(count_requeue(dir.path(), "7", 11, kNodes).allowed);
  EXPECT_TRUE(count_requeue(dir.path(), "8", 11, kNodes).allowed);
}

TEST(RequeueCount, WhatTheQueueHardlyMendsWaitsFromTheFirstAndEndsAfterFive) {
  for (const RequeueReason reason :
       {RequeueReason::Storage, RequeueReason::Crash, RequeueReason::Unknown}) {
    const TestDirectory dir;
    count_requeue(dir.path(), "7", 10, RequeueReason::Nodes);
    std::vector<double> waits;
    for (int i = 0; i < 5; ++i) {
      const RequeueDecision decision = count_requeue(dir.path(), "7", 10, reason);
      ASSERT_TRUE(decision.allowed) << i;
      waits.push_back(decision.wait_seconds);
    }
    EXPECT_EQ(waits, (std::vector<double>{60, 120, 240, 480, 960}));
    const RequeueDecision last = count_requeue(dir.path(), "7", 10, reason);
    EXPECT_FALSE(last.allowed);
    EXPECT_HAS(last.reason, "job 7 went back to the queue 5 times");
    EXPECT_HAS(last.reason, reason_name(reason));
    EXPECT_TRUE(count_requeue(dir.path(), "7", 10, RequeueReason::Nodes).allowed);
    EXPECT_TRUE(count_requeue(dir.path(), "7", 11, reason).allowed);
  }
}

TEST(RequeueCount, TheSupervisorsNoteIsTheReasonOfOneRequeue) {
  const TestDirectory dir;
  note_requeue_reason(dir.path(), "7", RequeueReason::Signal);
  EXPECT_EQ(count_requeue(dir.path(), "7", 10).wait_seconds, 0.0);
  EXPECT_EQ(count_requeue(dir.path(), "7", 10).wait_seconds, 60.0) << "not of the next";
  note_requeue_reason(dir.path(), "7", RequeueReason::Signal);
  EXPECT_EQ(count_requeue(dir.path(), "8", 10).wait_seconds, 60.0) << "nor another job's";
  EXPECT_EQ(requeue_reason("signal"), RequeueReason::Signal);
  EXPECT_EQ(requeue_reason(""), std::nullopt);
}

/// A file in place of the directory stands for a full disk: no permission stops root, who
/// may run the tests.
TEST(RequeueCount, WhereNothingCanBeCountedSlurmsOwnCountIsTheLimit) {
  const TestDirectory dir;
  write_file(dir / "control", "no directory");
  EXPECT_TRUE(count_requeue(dir.path(), "7", 1, RequeueReason::Storage).allowed);
  ::setenv("SLURM_RESTART_COUNT", "5", 1);
  EXPECT_FALSE(count_requeue(dir.path(), "7", 1, RequeueReason::Storage).allowed);
  EXPECT_TRUE(count_requeue(dir.path(), "7", 1, RequeueReason::Nodes).allowed);
  ::unsetenv("SLURM_RESTART_COUNT");
}

TEST(RequeueCount, ARecordThatCannotBeReadKeepsNobodyFromTheQueue) {
  const TestDirectory dir;
  fs::create_directories(dir / "control");
  write_text_durable(dir / "control/requeues.json", "no json");
  EXPECT_TRUE(count_requeue(dir.path(), "7", 1).allowed);
}

}  // namespace
}  // namespace longhaul::cluster
