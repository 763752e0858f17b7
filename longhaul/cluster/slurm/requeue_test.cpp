#include "longhaul/cluster/slurm/requeue.h"

#include <gtest/gtest.h>

#include "longhaul/base/error.h"
#include "longhaul/base/process.h"
#include "longhaul/cluster/record/exclusions.h"
#include "tests/support/scratch_directory.h"

namespace longhaul::cluster {
namespace {

/// A run, and a Slurm that keeps the list of nodes that a job must not get.
class Requeue : public testing::Test {
 protected:
  void exclude_in_run(const std::vector<std::string>& names) {
    std::vector<ExcludedNode> nodes;
    for (const std::string& name : names) nodes.push_back({name, 1.0, "lost"});
    put_into_file(nodes);
  }
  void put_into_file(const std::vector<ExcludedNode>& nodes) {
    write_excluded(dir_ / "excluded_nodes.json", nodes);
  }
  std::string requeue(size_t nodes = 3) {
    RequeueOptions options;
    options.job = "7";
    options.run_dir = dir_.path();
    options.nodes = nodes;
    options.wait_seconds = wait_;
    options.retry_seconds = 0.01;
    options.retry_limit_seconds = 0.2;
    waits_ = false;
    requeues_ = 0;
    return requeue_without_excluded(options, client());
  }

  std::string excluded_ = "(null)";
  int requeues_ = 0;
  int refusals_ = 0;  ///< how many of the next updates are refused
  bool silent_ = false;
  double wait_ = 0.0;
  std::string start_;

 private:
  SlurmClient client() {
    return SlurmClient(1, [this](const std::vector<std::string>& words,
                                 const CommandOptions&) { return answer(words); });
  }
  CommandResult answer(const std::vector<std::string>& words) {
    CommandResult result;
    if (words[0] == "sinfo") {
      result.output = "n1\nn2\nn3\nn4\nn5\n";
    } else if (words[1] == "show") {
      result.output = "Partition=batch\nExcNodeList=" + excluded_ + "\n";
      result.exit_code = silent_ ? 1 : 0;
    } else if (words[1] == "requeue") {
      ++requeues_;
      waits_ = true;
    } else if (words[1] == "update") {
      result.exit_code = waits_ && refusals_-- <= 0 ? 0 : 1;
      const std::string value = words[3].substr(words[3].find('=') + 1);
      if (result.ok()) (words[3].starts_with("StartTime") ? start_ : excluded_) = value;
    }
    return result;
  }
  TestDirectory dir_;
  bool waits_ = false;
};

TEST_F(Requeue, SlurmIsToldWhichNodesToLeaveOut) {
  exclude_in_run({"n2", "n5"});
  refusals_ = 2;  // the job is not yet back in the queue
  EXPECT_HAS(requeue(), "Slurm leaves out n2, n5");
  EXPECT_EQ(excluded_, "n[2,5]");
  EXPECT_EQ(requeues_, 1);
}

TEST_F(Requeue, AJobThatCameBackInVainWaitsBeforeItStarts) {
  requeue();
  EXPECT_EQ(start_, "");
  wait_ = 60.0;
  refusals_ = 2;
  requeue();
  EXPECT_EQ(start_, "now+60");
}

TEST_F(Requeue, WhatAPersonExcludedStaysAndWhatWasForgivenIsGivenBack) {
  excluded_ = "n4";
  exclude_in_run({"n2"});
  requeue();
  EXPECT_EQ(excluded_, "n[2,4]");
  exclude_in_run({"n1"});
  requeue();
  EXPECT_EQ(excluded_, "n[1,4]");
  exclude_in_run({});
  requeue();
  EXPECT_EQ(excluded_, "n4");
}

TEST_F(Requeue, AnExclusionThatHasExpiredIsNotHandedOverAndAPersonsIs) {
  const double now = unix_time();
  put_into_file({{"n1", now - kExclusionSeconds - 1, "sick", ExclusionKind::Health},
                 {"n2", now, "sick", ExclusionKind::Health},
                 {"n3", 1.0, "mine"}});
  requeue();
  EXPECT_EQ(excluded_, "n[2-3]");
}

TEST_F(Requeue, NothingIsExcludedWhereTooFewOtherNodesAre) {
  exclude_in_run({"n1", "n2"});
  EXPECT_HAS(requeue(4), "partition batch has 3 other nodes, but the job asks for 4");
  EXPECT_EQ(excluded_, "(null)");
  EXPECT_EQ(requeues_, 1);
  // Nodes that were excluded before are given back, too.
  requeue(3);
  EXPECT_EQ(excluded_, "n[1-2]");
  requeue(4);
  EXPECT_EQ(excluded_, "");
}

TEST_F(Requeue, TheJobGoesBackAlsoWhenTheListCannotBeHandedOver) {
  exclude_in_run({"n2"});
  refusals_ = 1000;
  EXPECT_HAS(requeue(), "scontrol update");
  EXPECT_EQ(requeues_, 1);
  silent_ = true;
  EXPECT_HAS(requeue(), "ended with 1");
  EXPECT_EQ(requeues_, 1);
}

}  // namespace
}  // namespace longhaul::cluster
