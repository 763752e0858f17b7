#include "longhaul/cluster/record/restart_record.h"

#include <gtest/gtest.h>

#include "tests/support/scratch_directory.h"

namespace longhaul::cluster {
namespace {

Fault crash_at(int64_t step) {
  Fault fault;
  fault.kind = FaultKind::Killed;
  fault.node = "n1";
  fault.step = step;
  fault.text = "a crash";
  return fault;
}

/// Each fault is judged by another supervisor of the job.
class RestartsOfAJob : public testing::Test {
 protected:
  Decision fault(const Fault& fault, const std::string& job = "7") {
    RestartPolicy policy({.max_restarts = 4}, read_restarts(dir_.path(), job, log_));
    const Decision decision = policy.decide(fault);
    write_restarts(dir_.path(), job, policy.counts(), log_);
    return decision;
  }
  TestDirectory dir_;
  system::Logger log_;
};

TEST_F(RestartsOfAJob, AreCountedOverAllOfItsSupervisors) {
  for (int64_t step = 1; step <= 4; ++step) EXPECT_TRUE(fault(crash_at(step)).restart);
  const Decision last = fault(crash_at(5));
  EXPECT_FALSE(last.restart);
  EXPECT_HAS(last.reason, "resilience.max_restarts = 4 are used up by this job; mend");
  EXPECT_TRUE(fault(crash_at(5), "8").restart) << "another job is a person's";
}

TEST_F(RestartsOfAJob, ACrashLoopIsNotBegunAnewByASuccession) {
  EXPECT_EQ(fault(crash_at(5)).delay_seconds, 0.0);
  EXPECT_EQ(fault(crash_at(5)).delay_seconds, 1.0);
  const Decision third = fault(crash_at(5));
  EXPECT_FALSE(third.restart);
  EXPECT_HAS(third.reason, "for the 3. time in a row");
  EXPECT_TRUE(third.exclude_node) << "faults on one node are counted on, too";
}

TEST_F(RestartsOfAJob, WhatAPersonStartsWithoutAJobCountsFromTheBeginning) {
  for (int i = 0; i < 10; ++i) EXPECT_TRUE(fault(crash_at(5), "").restart);
}

TEST_F(RestartsOfAJob, ARecordThatCannotBeReadCountsNothingAndIsToldOf) {
  fs::create_directories(dir_ / "control");
  for (const char* damage : {"no json", "{}", R"({"job": "7", "restarts": "many"})"}) {
    write_file(dir_ / "control/restarts.json", damage);
    system::Logger log = system::Logger::to_file(dir_ / "log.txt");
    EXPECT_EQ(read_restarts(dir_.path(), "7", log).restarts, 0);
    EXPECT_HAS(read_text(dir_ / "log.txt"), "counted from the beginning");
    fs::remove(dir_ / "log.txt");
  }
  EXPECT_TRUE(fault(crash_at(1)).restart);
  EXPECT_EQ(read_restarts(dir_.path(), "7", log_).restarts, 1);
}

}  // namespace
}  // namespace longhaul::cluster
