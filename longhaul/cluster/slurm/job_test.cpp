#include "longhaul/cluster/slurm/job.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "longhaul/base/error.h"
#include "longhaul/cluster/slurm/slurm_nodes.h"
#include "tests/support/scratch_directory.h"

namespace longhaul::cluster {
namespace {

using Names = std::vector<std::string>;

std::optional<SlurmJob> job_in(const std::map<std::string, std::string>& environment) {
  return slurm_job([&](const char* name) -> const char* {
    const auto found = environment.find(name);
    return found == environment.end() ? nullptr : found->second.c_str();
  });
}

/// A Slurm that answers every command with the same output and notes what was asked.
struct FakeSlurm {
  CommandResult result;
  std::vector<Names> asked;

  SlurmClient client() {
    return SlurmClient(5, [this](const Names& words, const CommandOptions&) {
      asked.push_back(words);
      return result;
    });
  }
  void says(std::string output, std::string errors = {}, int code = 0) {
    result.output = std::move(output);
    result.errors = std::move(errors);
    result.exit_code = code;
  }
};

TEST(SlurmJobs, TheEnvironmentNamesTheJob) {
  EXPECT_FALSE(job_in({}));
  const auto job = job_in({{"SLURM_JOB_ID", "77"},
                           {"SLURM_JOB_NAME", "pretrain"},
                           {"SLURM_JOB_NODELIST", "n[1-2,4]"},
                           {"SLURMD_NODENAME", "n1"},
                           {"SLURM_RESTART_COUNT", "3"}});
  ASSERT_TRUE(job);
  EXPECT_EQ(job->id, "77");
  EXPECT_EQ(job->nodes, (Names{"n1", "n2", "n4"}));
  EXPECT_EQ(job->here, "n1");
  EXPECT_EQ(job->restarts, 3);
  EXPECT_EQ(job_in({{"SLURM_JOB_ID", "77"}})->restarts, 0);
  EXPECT_THROW(job_in({{"SLURM_JOB_ID", "77; id"}}), InputError);
  EXPECT_THROW(job_in({{"SLURM_JOB_ID", "7"}, {"SLURM_RESTART_COUNT", "-1"}}),
               InputError);
  EXPECT_THROW(job_in({{"SLURM_JOB_ID", "7"}, {"SLURM_JOB_NODELIST", "n[1-"}}),
               InputError);
}

TEST(SlurmJobs, StepsAreNamedButForTheCallersOwn) {
  FakeSlurm slurm;
  slurm.says("7.batch|n1|batch\n7.1|n1|agents\n7.2|n2|agents\n7.3|n[1-2]|workers\n");
  SlurmJob job;
  job.id = "7";
  job.step = "7.2";
  const auto steps = slurm.client().query_steps(job.id);
  EXPECT_EQ(steps_named(steps, job, "agents"), Names{"7.1"});
  EXPECT_EQ(steps_named(steps, job, "workers"), Names{"7.3"});
}

TEST(SlurmJobs, AControllerThatIsAwayIsWaitedForAndARefusalIsNot) {
  int asked = 0;
  std::string errors = "scontrol: error: Unable to contact slurm controller";
  const SlurmClient slurm(5, [&](const Names&, const CommandOptions&) {
    CommandResult result;
    result.exit_code = ++asked < 3 ? 1 : 0;
    result.errors = errors;
    return result;
  });
  EXPECT_THROW(slurm.requeue("7"), TemporaryError);
  EXPECT_EQ(asked, 1);
  std::vector<std::string> told;
  const SlurmPatience patience = {
      .seconds = 10, .pause_seconds = 0.001, .tell = [&](const std::string& line) {
        told.push_back(line);
      }};
  asked = 0;
  slurm.waiting(patience).requeue("7");
  EXPECT_EQ(asked, 3);
  ASSERT_EQ(told.size(), 1U);
  EXPECT_HAS(told.front(), "does not answer 'scontrol requeue 7'");
  asked = 0;
  errors = "Invalid job id specified";
  EXPECT_THROW(slurm.waiting(patience).requeue("7"), TemporaryError);
  EXPECT_EQ(asked, 1);
}

TEST(SlurmJobs, TimesAreRead) {
  EXPECT_EQ(slurm_seconds("0:05"), 5);
  EXPECT_EQ(slurm_seconds("59:59"), 3599);
  EXPECT_EQ(slurm_seconds("02:03:04"), 7384);
  EXPECT_EQ(slurm_seconds("1-02:03:04"), 86400 + 7384);
  EXPECT_TRUE(std::isinf(slurm_seconds("UNLIMITED")));
  for (const char* text : {"", "x", "1:2:3:4", "-", "1--2", "1:-2"}) {
    EXPECT_THROW(slurm_seconds(text), InputError) << text;
  }
}

TEST(SlurmJobs, TimeLimitsAreReadAsSlurmReadsThem) {
  EXPECT_EQ(time_limit_seconds("30"), 1800);
  EXPECT_EQ(time_limit_seconds("30:15"), 1815);
  EXPECT_EQ(time_limit_seconds("8:00:10"), 8 * 3600 + 10);
  EXPECT_EQ(time_limit_seconds("2-12"), 60 * 3600);
  EXPECT_EQ(time_limit_seconds("1-0:30"), 86400 + 1800);
  EXPECT_TRUE(std::isinf(time_limit_seconds("UNLIMITED")));
  for (const char* text : {"", "x", "1:2:3:4", "1-", "-5", "30 min"}) {
    EXPECT_THROW(time_limit_seconds(text), InputError) << text;
  }
}

TEST(SlurmJobs, AShrunkJobIsSeen) {
  FakeSlurm slurm;
  slurm.says("RUNNING|n[2-3]|n1|59:30|None\n");
  const auto job = slurm.client().query_job("12");
  ASSERT_TRUE(job);
  EXPECT_EQ(job->state, "RUNNING");
  EXPECT_EQ(job->nodes, (Names{"n2", "n3"}));
  EXPECT_EQ(job->batch_host, "n1");
  EXPECT_EQ(job->seconds_left, 59 * 60 + 30);
  EXPECT_EQ(slurm.asked.front().front(), "squeue");

  slurm.says("PENDING||n/a|1:00:00|BeginTime\n");
  EXPECT_EQ(slurm.client().query_job("12")->reason, "BeginTime");
  EXPECT_TRUE(slurm.client().query_job("12")->nodes.empty());
}

TEST(SlurmJobs, AForgottenJobIsNothingAndASilentSlurmAnError) {
  FakeSlurm slurm;
  slurm.says("", "slurm_load_jobs error: Invalid job id specified\n", 1);
  EXPECT_FALSE(slurm.client().query_job("12"));
  slurm.says("", "slurm_load_jobs error: Unable to contact slurm controller\n", 1);
  EXPECT_HAS(message_of<TemporaryError>([&] { slurm.client().query_job("12"); }),
             "Unable to contact slurm controller");
  slurm.says("RUNNING|n1\n");
  EXPECT_THROW(slurm.client().query_job("12"), TemporaryError);
  slurm.says("");
  slurm.result.timed_out = true;
  EXPECT_HAS(message_of<TemporaryError>([&] { slurm.client().query_job("12"); }),
             "is slurmctld down?");
}

TEST(SlurmJobs, StepsAreThoseOfTheJobWithoutItsScript) {
  FakeSlurm slurm;
  slurm.says("12.0|n2|agent\n12.1|n[1-4]|a|b\n12.batch|n1|batch\n12.extern|n1|extern\n");
  const auto steps = slurm.client().query_steps("12");
  ASSERT_EQ(steps.size(), 2u);
  EXPECT_EQ(steps[0].id, "12.0");
  EXPECT_EQ(steps[1].nodes, (Names{"n1", "n2", "n3", "n4"}));
  EXPECT_EQ(steps[1].name, "a|b");
}

TEST(SlurmJobs, NodesThatAreOfUseAreToldFromTheOthers) {
  FakeSlurm slurm;
  slurm.says(
      "n1|idle\nn1|idle\nn2|allocated*\nn3|down*\nn4|allocated\nn5|drained\nn6|mixed-\n");
  const auto nodes = slurm.client().query_nodes({"n1", "n2", "n3", "n4", "n5", "n6"});
  ASSERT_EQ(nodes.size(), 6u);
  EXPECT_EQ(slurm.asked.front()[4], "n[1-6]");
  std::vector<bool> usable;
  for (const NodeStatus& node : nodes) usable.push_back(node.usable());
  EXPECT_EQ(usable, (std::vector<bool>{true, false, false, true, false, true}));
  EXPECT_EQ(nodes[2].state, "down");
  EXPECT_TRUE(slurm.client().query_nodes({}).empty());
}

/// A Slurm whose nodes n2 and n3 power up: each look at the nodes has the next states.
struct BootingSlurm {
  std::vector<std::string> states = {};
  std::string nodes = "n[1-3]";  ///< the job's at the end
  bool refuses = false;
  size_t looks = 0;
  Names updates = {};

  Names await(double seconds, const std::function<bool()>& stop = {}) {
    const SlurmClient slurm(5, [this](const Names& words, const CommandOptions&) {
      CommandResult result;
      if (words[0] == "sinfo")
        result.output = states[std::min(looks++, states.size() - 1)];
      if (words[0] == "squeue") result.output = "RUNNING|" + nodes + "|n1|1:00|None\n";
      if (words[0] == "scontrol") {
        updates.push_back(words.back());
        result.exit_code = refuses ? 1 : 0;
      }
      return result;
    });
    return await_boot(slurm, "12", {"n1", "n2", "n3"},
                      {.seconds = seconds, .pause_seconds = 0.001, .stop = stop});
  }
};
const std::string kBothBoot = "n1|allocated\nn2|allocated~\nn3|mixed^\n";
const std::string kOneBoots = "n1|allocated\nn2|allocated\nn3|allocated#\n";
const std::string kNoneBoots = "n1|allocated\nn2|allocated\nn3|allocated\n";

TEST(NodesThatBoot, AreAwaitedUntilNoneIsPoweringUp) {
  BootingSlurm slurm{.states = {kBothBoot, kBothBoot, kOneBoots, kNoneBoots}};
  ::testing::internal::CaptureStdout();
  EXPECT_EQ(slurm.await(100.0), (Names{"n1", "n2", "n3"}));
  const std::string told = ::testing::internal::GetCapturedStdout();
  EXPECT_HAS(told,
             "Slurm shows n2, n3 powering up: the start waits, at most 100 s "
             "(resilience.node_boot_s)");
  EXPECT_EQ(slurm.looks, 4U);
  EXPECT_TRUE(slurm.updates.empty());
}

TEST(NodesThatBoot, CostNothingWhereNoneIsPoweringUp) {
  BootingSlurm slurm{.states = {"n1|allocated\nn2|idle#\nn3|down~\n"}};
  ::testing::internal::CaptureStdout();
  EXPECT_EQ(slurm.await(100.0), (Names{"n1", "n2", "n3"}));
  EXPECT_EQ(::testing::internal::GetCapturedStdout(), "");
  EXPECT_EQ(slurm.looks, 1U);
}

TEST(NodesThatBoot, AreTakenFromTheJobAfterTheLimit) {
  BootingSlurm slurm{.states = {kBothBoot, kOneBoots}};
  ::testing::internal::CaptureStdout();
  EXPECT_EQ(slurm.await(0.05), (Names{"n1", "n2"}));
  const std::string told = ::testing::internal::GetCapturedStdout();
  EXPECT_HAS(told,
             "n3 did not boot within 0.05 s (resilience.node_boot_s): the job goes on "
             "without");
  EXPECT_EQ(slurm.updates, (Names{"NodeList=n[1-2]"}));
  slurm.refuses = true;
  ::testing::internal::CaptureStdout();
  EXPECT_EQ(slurm.await(0.0), (Names{"n1", "n2"}));
  const std::string kept = ::testing::internal::GetCapturedStdout();
  EXPECT_HAS(kept, "Slurm keeps n3 in the job");
}

TEST(NodesThatBoot, AreNotAwaitedOnceSlurmHasGivenThemUp) {
  BootingSlurm slurm{.states = {kOneBoots, kNoneBoots}, .nodes = "n[1-2]"};
  EXPECT_EQ(slurm.await(100.0), (Names{"n1", "n2"}));
  EXPECT_TRUE(slurm.updates.empty());
}

TEST(NodesThatBoot, AreNotAwaitedByAJobThatIsToEnd) {
  BootingSlurm slurm{.states = {kBothBoot}};
  EXPECT_EQ(slurm.await(100.0, [&] { return slurm.looks > 2; }).size(), 3U);
  EXPECT_TRUE(slurm.updates.empty());
}

TEST(SlurmJobs, WhatAJobAsksForIsRead) {
  FakeSlurm slurm;
  slurm.says(
      "JobId=12 JobName=a\n   Partition=batch,big AllocNode:Sid=head:1\n"
      "   ReqNodeList=(null) ExcNodeList=n[2-3]\n");
  const JobRequest request = slurm.client().query_request("12");
  EXPECT_EQ(request.partition, "batch,big");
  EXPECT_EQ(request.excluded, (Names{"n2", "n3"}));
  slurm.says("   Partition=batch X=\n   ExcNodeList=(null)\n   ExcNodeList=\n");
  EXPECT_TRUE(slurm.client().query_request("12").excluded.empty());
  slurm.says("slurm is what?\n");
  EXPECT_THROW(slurm.client().query_request("12"), TemporaryError);
  // sinfo names a node once for each of its partitions.
  slurm.says("n1\nn2\nn1\n");
  EXPECT_EQ(slurm.client().query_partition("batch,big"), (Names{"n1", "n2"}));
  slurm.client().exclude("12", {"n1", "n2", "n9"});
  EXPECT_EQ(slurm.asked.back(),
            (Names{"scontrol", "update", "JobId=12", "ExcNodeList=n[1-2,9]"}));
}

TEST(SlurmJobs, CommandsSayWhatTheyShould) {
  FakeSlurm slurm;
  const SlurmClient client = slurm.client();
  client.requeue("12");
  EXPECT_TRUE(client.start_later("12", 60.0));
  EXPECT_EQ(slurm.asked[0], (Names{"scontrol", "requeue", "12"}));
  EXPECT_EQ(slurm.asked[1],
            (Names{"scontrol", "update", "JobId=12", "StartTime=now+60"}));
  EXPECT_EQ(kill_step_command("12.3"),
            (Names{"scancel", "--quiet", "--signal=KILL", "12.3"}));
  for (const char* wrong : {"", "12", "12.", "12.x", "-s.1"}) {
    EXPECT_THROW(kill_step_command(wrong), InputError) << wrong;
  }
  EXPECT_THROW(client.requeue("-a"), InputError);
  slurm.says("", "Job update not available right now\n", 1);
  EXPECT_FALSE(client.start_later("12", 60.0));
  slurm.says("991;east\n");
  EXPECT_EQ(client.submit("/a/b"), "991");
  slurm.says("Submitted nothing\n");
  EXPECT_THROW(client.submit("/a/b"), InputError);
}

TEST(SlurmClient, SuccessorsOnAnotherSwitchThanTheSupervisorsComeFirst) {
  const SlurmClient slurm(
      1, [&](const std::vector<std::string>& words, const CommandOptions&) {
        EXPECT_EQ(words, (std::vector<std::string>{"scontrol", "show", "topology"}));
        CommandResult result;
        result.output =
            "SwitchName=s0 Level=0 LinkSpeed=1 Nodes=n[1-2]\n"
            "SwitchName=s1 Level=0 LinkSpeed=1 Nodes=n[3-4]\n"
            "SwitchName=s2 Level=1 LinkSpeed=1 Nodes=n[1-4] Switches=s[0-1]\n";
        return result;
      });
  const std::vector<std::string> nodes = {"n1", "n2", "n3", "n4"};
  EXPECT_EQ(succession_order("n2", nodes, slurm.query_switches()),
            (std::vector<std::string>{"n3", "n4", "n1", "n2"}));
  EXPECT_EQ(succession_order("n2", nodes, {}), nodes) << "no topology is known";
}

}  // namespace
}  // namespace longhaul::cluster
