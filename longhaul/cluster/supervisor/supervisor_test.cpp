#include "longhaul/cluster/supervisor/supervisor.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <functional>
#include <sstream>
#include <system_error>
#include <thread>

#include "longhaul/base/error.h"
#include "longhaul/base/exit_code.h"
#include "longhaul/base/json.h"
#include "longhaul/base/process.h"
#include "longhaul/cluster/health/peers.h"
#include "longhaul/cluster/record/exclusions.h"
#include "longhaul/cluster/record/requeue_count.h"
#include "longhaul/run/run_past.h"
#include "longhaul/system/stopwatch.h"
#include "tests/support/checked_node.h"
#include "tests/support/scratch_directory.h"
#include "tests/support/supervised_nodes.h"

namespace longhaul::cluster {
namespace {

TEST_F(SupervisorOfNodes, RestartsOfTheSupervisorsBeforeItAreCountedOn) {
  fleet_.nodes = {{"n1", true}, {"n2", true}};
  words_ = {"false"};
  EXPECT_EQ(run(), kExitSettings);  // the third time in a row
  EXPECT_EQ(started_, 3);
  EXPECT_EQ(run(), kExitSettings);
  EXPECT_EQ(started_, 4);
  EXPECT_EQ(events("supervisor_end").back().at("restarts"), 2);
  EXPECT_HAS(read_text(dir_ / "log.txt"), "for the 4. time in a row");
}

TEST_F(SupervisorOfNodes, ARestartMissesACheckpointThatTheRunCommittedAndThatIsGone) {
  fleet_.nodes = {{"n1", true}, {"n2", true}};
  run::RunPast record = run::RunPast::begin();
  record.newest = 4;
  record.checkpoints = (dir_ / "checkpoints").string();
  record.write(dir_.path());
  // No start has loaded its state, so the settings for the first start still hold.
  words_ = {"false"};
  EXPECT_EQ(run(), kExitSettings);
  EXPECT_EQ(resumed_, (std::vector<bool>{false, false, false}));
  ++record.loads;
  fs::create_directories(dir_ / "later");
  record.write(dir_ / "later");
  words_ = {"sh", "-c",
            fmt::format("cp {} {}; exit 1", (dir_ / "later/run.json").string(),
                        (dir_ / "run.json").string())};
  fs::remove(dir_ / "control/restarts.json");
  resumed_.clear();
  EXPECT_EQ(run(), kExitSettings);
  EXPECT_EQ(resumed_, (std::vector<bool>{false, true, true}));
  // The checkpoints lie in another place. Then the start itself judges them by its
  // settings.
  record.checkpoints = (dir_ / "elsewhere").string();
  ++record.loads;
  record.write(dir_ / "later");
  fs::remove(dir_ / "control/restarts.json");
  resumed_.clear();
  EXPECT_EQ(run(), kExitSettings);
  EXPECT_EQ(resumed_, (std::vector<bool>{false, false, false}));
}

TEST_F(SupervisorOfNodes, ARecordThatCouldNotBeReadAtTheBeginningCountsFromTheFirstLook) {
  fleet_.nodes = {{"n1", true}, {"n2", true}};
  fs::create_directories(dir_ / "later");
  run::RunPast record = run::RunPast::begin();
  record.loads = 2;
  record.newest = 4;
  record.checkpoints = (dir_ / "checkpoints").string();
  record.write(dir_ / "later");
  write_file(dir_ / "run.json", "{");
  words_ = {"sh", "-c",
            fmt::format("cp {} {}; exit 1", (dir_ / "later/run.json").string(),
                        (dir_ / "run.json").string())};
  EXPECT_EQ(run(), kExitSettings);
  // No start is known to have loaded its state, so the settings for the first one hold.
  EXPECT_EQ(resumed_, (std::vector<bool>{false, false, false}));
}

TEST_F(SupervisorOfNodes, OneThatTakesOverAJobWithoutRestartsLeftDoesNotCallItDone) {
  fleet_.nodes = {{"n1", true}, {"n2", true}};
  SupervisorOptions options;
  options.lost_node = "n9";
  options.rules.max_restarts = 0;
  EXPECT_EQ(run(std::move(options)), kExitSettings);
  EXPECT_EQ(started_, 0);
  EXPECT_HAS(read_text(dir_ / "log.txt"), "resilience.max_restarts = 0 are used up");
}

TEST_F(SupervisorOfNodes, WhatTheQueueDoesNotReplaceIsUsedAgainWhenACheckPasses) {
  fleet_.nodes = {{"n1", true}, {"n2", true}, {"n3", false}, {"n4", true}};
  write_excluded(dir_ / "excluded_nodes.json",
                 {{"n2", unix_time(), "twice", ExclusionKind::Silence, true},
                  {"n3", unix_time(), "thrice", ExclusionKind::Faults},
                  {"n4", unix_time(), "a person"}});
  EXPECT_EQ(run(), kExitTemporary) << "the queue may bring others";
  EXPECT_EQ(started_, 0);
  count_requeue(dir_.path(), "7", 0);
  EXPECT_EQ(run(), 0);
  EXPECT_EQ(started_without_, (Names{"n3", "n4"}));
  EXPECT_HAS(read_text(dir_ / "log.txt"), "the queue has given no other node");
  // After a newer checkpoint the job is requeued once before excluded nodes are used
  // again.
  write_excluded(dir_ / "excluded_nodes.json",
                 {{"n2", unix_time(), "twice", ExclusionKind::Silence, true},
                  {"n3", unix_time(), "thrice", ExclusionKind::Faults},
                  {"n4", unix_time(), "a person"}});
  fs::create_directories(dir_ / "checkpoints/step_00000005");
  write_file(dir_ / "checkpoints/step_00000005/manifest.json", "{}");
  EXPECT_EQ(run(), kExitTemporary);
}

TEST_F(SupervisorOfNodes, OneThatWasMendedIsUsedAgainByTheNextSupervisor) {
  fleet_.nodes = {{"n1", true}, {"n2", true}, {"n3", false}};
  exclude("n2", ExclusionKind::Health);
  exclude("n3", ExclusionKind::Silence);
  EXPECT_EQ(run(), 0);
  EXPECT_EQ(started_without_, Names{"n3"});
  const std::vector<Json> back = events("node_readmitted");
  ASSERT_EQ(back.size(), 1U);
  EXPECT_EQ(back[0].at("node"), "n2");
  EXPECT_EQ(back[0].at("kind"), "health");
  EXPECT_HAS(read_text(dir_ / "log.txt"), "n2 is used again");
}

TEST_F(SupervisorOfNodes, AStartThatLacksNodesLooksAtThoseThatAreLeftOut) {
  fleet_.nodes = {{"n1", true}};
  late_ = {{"n2", true}};
  exclude("n2", ExclusionKind::Silence);
  EXPECT_EQ(run(), 0);
  EXPECT_EQ(started_without_, Names{});
  EXPECT_EQ(fleet_.checks, 2);
}

TEST_F(SupervisorOfNodes, AStartThatLacksNodesUsesNoneWhoseCheckFails) {
  fleet_.nodes = {{"n1", true}};
  late_ = {{"n2", false}};
  exclude("n2", ExclusionKind::Silence);
  EXPECT_EQ(run(), 75);
  EXPECT_TRUE(events("node_readmitted").empty());
  EXPECT_EQ(read_excluded(dir_ / "excluded_nodes.json").size(), 1U);
}

TEST_F(SupervisorOfNodes, TheReasonOfARequeueIsNoted) {
  fleet_.nodes = {{"n1", true}};
  EXPECT_EQ(run(), 75);
  EXPECT_HAS(read_text(dir_ / "control/requeues.json"), R"("note":"nodes")");
  EXPECT_EQ(count_requeue(dir_.path(), "7", 0).wait_seconds, 0.0);
  trouble_ = std::make_error_code(std::errc::no_space_on_device);
  EXPECT_EQ(run(), 75);
  EXPECT_HAS(read_text(dir_ / "control/requeues.json"), R"("note":"storage")");
}

TEST_F(SupervisorOfNodes, AFaultOfARunThatWasAskedToStopIsNoFailureOfTheJob) {
  fleet_.nodes = {{"n1", true}, {"n2", true}};
  words_ = {"sh", "-c", "kill -USR1 $PPID; exit 1"};
  EXPECT_EQ(run(), 75);
  EXPECT_HAS(read_text(dir_ / "control/requeues.json"), R"("note":"signal")");
  EXPECT_EQ(started_, 1);
}

TEST_F(SupervisorOfNodes, ALauncherThatHangsBeforeItsFirstWorkerIsEndedWhenAsked) {
  fleet_.nodes = {{"n1", true}, {"n2", true}};
  words_ = {"sleep", "600"};
  fleet_.make_reports = [&, looks = 0]() mutable {
    if (started_ == 1 && ++looks == 2) std::raise(SIGTERM);
    return MadeUpFleet::Reports();
  };
  SupervisorOptions options;
  options.start_patience_seconds = 0.1;
  const system::Stopwatch watch;
  EXPECT_EQ(run(options), kExitTemporary);
  // The supervisor did not wait the 600 s that the patience for a signal allows.
  EXPECT_LT(watch.seconds(), 60.0);
  EXPECT_EQ(started_, 1);
  ASSERT_FALSE(fleet_.causes.empty());
  EXPECT_EQ(fleet_.causes[0], SIGTERM);
  const std::string log = read_text(dir_ / "log.txt");
  EXPECT_HAS(log, "SIGTERM: the workers save and end");
  EXPECT_HAS(log, "no worker has begun, so there is nothing to save");
}

TEST_F(SupervisorOfNodes, ARequestBeforeTheFirstStartStartsNothing) {
  fleet_.nodes = {{"n1", true}, {"n2", true}};
  fleet_.at_check = [] { std::raise(SIGHUP); };
  EXPECT_EQ(run(), kExitTemporary);
  EXPECT_EQ(started_, 0);
  EXPECT_HAS(read_text(dir_ / "log.txt"),
             "SIGHUP came before the start, so nothing was started");
}

TEST_F(SupervisorOfNodes, WhatAPersonLeftOutIsNotEvenAsked) {
  fleet_.nodes = {{"n1", true}};
  late_ = {{"n2", true}};
  exclude("n2", ExclusionKind::Person);
  EXPECT_EQ(run(), 75);
  EXPECT_EQ(fleet_.checks, 1);
}

const PathView kSame{true, "run 7", {}};
const PathView kNothing{true, {}, {}};

TEST_F(SupervisorOfNodes, TheNodeThatLacksTheRunIsLeftOutBeforeTheFirstStart) {
  fleet_.nodes = {{"n1", true}, {"n2", true}, {"n3", true}};
  fleet_.views = {{"n1", kSame}, {"n2", kNothing}, {"n3", kSame}};
  EXPECT_EQ(run(), 0);
  EXPECT_EQ(started_without_, Names{"n2"});
  EXPECT_TRUE(events("node_readmitted").empty());
  const auto left_out = read_excluded(dir_ / "excluded_nodes.json");
  ASSERT_EQ(left_out.size(), 1U);
  EXPECT_HAS(left_out[0].cause, "holds nothing, where other nodes see run 7");
}

TEST_F(SupervisorOfNodes, AFaultIsThatOfTheNodeThatLacksSomethingWhoeverTellsOfIt) {
  fleet_.nodes = {{"n1", true}, {"n2", true}, {"n3", true}};
  fleet_.make_reports = [this] {
    // The node loses the run's directory when the ranks run.
    fleet_.views = {{"n1", kSame}, {"n2", kNothing}, {"n3", kSame}};
    NodeReport node;
    node.node = "n1";
    ObservedRank rank;
    rank.node = "n1";
    rank.failure = "[run directory] rank 2 of 4 on n2 does not find run.json";
    rank.exit_code = 75;
    if (started_ == 1) node.ranks = {rank};
    return std::vector<NodeReport>{node};
  };
  words_ = {"true"};
  EXPECT_EQ(run(), 0);
  ASSERT_EQ(events("fault").size(), 1U);
  const Json fault = events("fault")[0];
  EXPECT_EQ(fault.at("kind"), "node");
  EXPECT_EQ(fault.at("node"), "n2");
  EXPECT_EQ(fault.at("rank"), -1);
  EXPECT_HAS(fault.at("cause").get<std::string>(), "noticed by: rank 0 on n1");
  EXPECT_EQ(started_without_, Names{"n2"});
}

const std::map<std::string, std::vector<std::string>> kLostEachOther = {{"n2", {"n3"}},
                                                                        {"n3", {"n2"}}};

TEST_F(SupervisorOfNodes, AStartThatDiesBeforeItsRanksIsOfTheNodesThatLostEachOther) {
  fleet_.nodes = {{"n1", true}, {"n2", true}, {"n3", true}, {"n4", true}};
  fleet_.at_check = [this] {
    if (started_ > 0) fleet_.unreached = kLostEachOther;
  };
  words_ = {"sh", "-c",
            fmt::format("[ -e {0} ] || {{ touch {0}; exit 1; }}", (dir_ / "x").string())};
  EXPECT_EQ(run(), 0);
  EXPECT_EQ(started_, 2);
  EXPECT_EQ(started_without_, Names{"n3"});
  ASSERT_EQ(events("fault").size(), 1U);
  const Json fault = events("fault")[0];
  EXPECT_EQ(fault.at("kind"), "node");
  EXPECT_EQ(fault.at("node"), "n3");
  const auto cause = fault.at("cause").get<std::string>();
  EXPECT_HAS(cause, "n2 and n3 do not reach each other (tried from n2 to n3, n3 to n2)");
  EXPECT_HAS(cause, "noticed by: the launcher ended with exit code 1 before any rank");
  EXPECT_EQ(read_excluded(dir_ / "excluded_nodes.json").size(), 1U);
}

TEST_F(SupervisorOfNodes, AWayThatOnlyStumblesCostsNoNode) {
  fleet_.nodes = {{"n1", true}, {"n2", true}, {"n3", true}};
  fleet_.at_check = [this, looks = 0]() mutable {
    fleet_.unreached.clear();
    if (started_ > 0 && ++looks == 1) fleet_.unreached = kLostEachOther;
  };
  words_ = {"sh", "-c",
            fmt::format("[ -e {0} ] || {{ touch {0}; exit 1; }}", (dir_ / "x").string())};
  EXPECT_EQ(run(), 0);
  EXPECT_EQ(events("fault").at(0).at("kind"), "launcher");
  EXPECT_EQ(events("restart").at(0).at("nodes"), Json::array());
  EXPECT_FALSE(fs::exists(dir_ / "excluded_nodes.json"));
}

TEST_F(SupervisorOfNodes, AWayThatIsLostBeforeTheFirstStartCostsNoStart) {
  fleet_.nodes = {{"n1", true}, {"n2", true}, {"n3", true}};
  fleet_.unreached = kLostEachOther;
  EXPECT_EQ(run(), 0);
  EXPECT_EQ(started_without_, Names{"n3"});
  // The next supervisor finds the connection to the node still lost, so the node stays
  // out.
  EXPECT_EQ(run(), 0);
  EXPECT_EQ(started_without_, Names{"n3"});
  EXPECT_TRUE(events("node_readmitted").empty());
  fleet_.unreached.clear();
  EXPECT_EQ(run(), 0);
  EXPECT_EQ(started_without_, Names{});
}

TEST_F(SupervisorOfNodes, WhatMostNodesCannotWriteCostsNoNodeWhoeverTellsOfIt) {
  fleet_.nodes = {{"n1", true}, {"n2", true}, {"n3", true}};
  for (const bool of_all : {false, true}) {
    fs::remove(dir_ / "excluded_nodes.json");
    fs::remove(dir_ / "control/restarts.json");
    started_ = 0;
    fleet_.make_reports = [&] {
      const PathView full{true, "run 7", "Disk quota exceeded"};
      if (of_all) fleet_.views = {{"n1", full}, {"n2", full}, {"n3", full}};
      std::vector<NodeReport> reports;
      for (const char* node : {"n1", "n2"}) {
        ObservedRank rank;
        rank.rank = node[1] - '1';
        rank.node = node;
        rank.failure = "[checkpoint] step 12 was not saved: rank 1: Disk quota exceeded";
        rank.exit_code = 75;
        rank.told = rank.rank == 0;
        reports.emplace_back().node = node;
        if (started_ > 0 && started_ < 4) reports.back().ranks = {rank};
      }
      return reports;
    };
    EXPECT_EQ(run(), 0);
    EXPECT_EQ(started_without_, of_all ? Names{} : Names{"n2"});
  }
  for (const Json& fault : events("fault")) EXPECT_EQ(fault.at("node"), "n2");
  EXPECT_EQ(events("fault").size(), 6U);
}

TEST_F(SupervisorOfNodes, OneThatBeganInAWrongDirectoryHasTheQueueGiveAnotherNode) {
  fleet_.nodes = {{"n1", true}, {"n2", true}, {"n3", true}};
  fleet_.views = {{"n1", kNothing}, {"n2", kSame}, {"n3", kSame}};
  EXPECT_EQ(run(), kExitTemporary);
  EXPECT_EQ(started_, 0);
  EXPECT_FALSE(fleet_.abandoned);
  EXPECT_HAS(read_text(dir_ / "control/requeues.json"), R"("note":"nodes")");
  EXPECT_EQ(read_excluded(dir_ / "excluded_nodes.json").at(0).node, "n1");
}

TEST_F(SupervisorOfNodes, OneThatBeganInAWrongDirectoryLeavesItAsItWasForAnotherNode) {
  fleet_.nodes = {{"n1", true}, {"n2", true}, {"n3", true}};
  fleet_.views = {{"n1", kNothing}, {"n2", kSame}, {"n3", kSame}};
  SupervisorOptions options;
  options.may_move = true;
  EXPECT_EQ(run(std::move(options)), kExitNotHere);
  EXPECT_EQ(started_, 0);
  EXPECT_FALSE(fs::exists(dir_ / "control/supervisor.lock"));
  EXPECT_FALSE(fs::exists(dir_ / "excluded_nodes.json"));
}

/// Writes down which run the workers must find.
constexpr const char* kTellRun = "echo -n \"$LONGHAUL_RUN\" > told";

TEST_F(SupervisorOfNodes, WorkersAreToldWhichRunTheyMustFind) {
  fleet_.nodes = {{"n1", true}, {"n2", true}};
  words_ = {"sh", "-c", fmt::format("cd {}; {}", dir_.path().string(), kTellRun)};
  EXPECT_EQ(run(), 0);
  EXPECT_EQ(read_text(dir_ / "told"), "");
  SupervisorOptions options;
  options.run = "of the job";
  EXPECT_EQ(run(options), 0);
  EXPECT_EQ(read_text(dir_ / "told"), "of the job");
  run::RunPast record = run::RunPast::begin();
  record.write(dir_.path());  // by a start that never loaded its state
  EXPECT_EQ(run(options), 0);
  EXPECT_EQ(read_text(dir_ / "told"), "of the job");
  record.loads = 1;
  record.write(dir_.path());
  EXPECT_EQ(run(), 0);
  EXPECT_EQ(read_text(dir_ / "told"), record.run);
}

TEST_F(SupervisorOfNodes, TheJobsRecordNamesTheRunOnceItHasBegun) {
  fleet_.nodes = {{"n1", true}, {"n2", true}};
  const fs::path noted = dir_ / "noted";
  SupervisorOptions options;
  options.note_run = [&](const std::string& run) { write_text_durable(noted, run); };
  options.start_patience_seconds = 0.1;
  run::RunPast record = run::RunPast::begin();
  record.write(dir_.path());
  EXPECT_EQ(run(options), 0);
  EXPECT_FALSE(fs::exists(noted));
  words_ = {"sleep", "30"};
  fleet_.make_reports = [&] {
    record.loads = 1;
    if (started_ > 1) record.write(dir_.path());
    if (fs::exists(noted)) std::raise(SIGTERM);
    return std::vector<NodeReport>{};
  };
  EXPECT_EQ(run(options), kExitTemporary);
  EXPECT_EQ(read_text(noted), record.run);
}

TEST_F(SupervisorOfNodes, OneThatAloneDoesNotSeeTheLockAnyMoreLeavesTheRunToAnother) {
  fleet_.nodes = {{"n1", true}, {"n2", true}, {"n3", true}};
  words_ = {"sh", "-c",
            fmt::format("rm {}; sleep 30", (dir_ / "control/supervisor.lock").string())};
  fleet_.make_reports = [this] {
    if (started_ > 0) fleet_.views = {{"n1", kNothing}, {"n2", kSame}, {"n3", kSame}};
    return std::vector<NodeReport>{};
  };
  EXPECT_EQ(run(), kExitSuperseded);
  EXPECT_TRUE(fleet_.abandoned);
  EXPECT_TRUE(read_excluded(dir_ / "excluded_nodes.json").empty());
}

TEST_F(SupervisorOfNodes, ARunWhoseDirectoryWasRenamedEndsForAPersonToLook) {
  fleet_.nodes = {{"n1", true}, {"n2", true}};
  words_ = {"sh", "-c",
            fmt::format("rm {}; sleep 30", (dir_ / "control/supervisor.lock").string())};
  EXPECT_EQ(run(), kExitSettings);
  EXPECT_FALSE(fleet_.abandoned);
}

TEST_F(SupervisorOfNodes, ALockThatWasRemovedAloneIsToldAsThat) {
  fleet_.nodes = {{"n1", true}, {"n2", true}};
  run::RunPast::begin().write(dir_.path());
  words_ = {"sh", "-c",
            fmt::format("rm {}; sleep 30", (dir_ / "control/supervisor.lock").string())};
  testing::internal::CaptureStdout();
  EXPECT_EQ(run(), kExitSettings);
  const std::string said = testing::internal::GetCapturedStdout();
  EXPECT_HAS(said, "control/supervisor.lock was removed while the run trained");
  EXPECT_EQ(said.find("renamed"), std::string::npos);
}

TEST_F(SupervisorOfNodes, RanksThatSaveAndEndByThemselvesWereAskedByASignal) {
  fleet_.nodes = {{"n1", true}, {"n2", true}};
  words_ = {"sh", "-c", "exit 75"};
  EXPECT_EQ(run(), kExitTemporary);
  EXPECT_HAS(read_text(dir_ / "control/requeues.json"), R"("note":"signal")");
}

TEST_F(SupervisorOfNodes, OnlyAPauseOfAllNodesIsASuspension) {
  fleet_.nodes = {{"n1", true}, {"n2", true}};
  for (const bool all : {false, true}) {
    // Stops this process, as Slurm does; the child that it starts wakes it up.
    words_ = {"sh", "-c",
              "sleep 0.3; kill -STOP $PPID; sleep 3; kill -CONT $PPID; sleep 1"};
    const system::Stopwatch watch;
    fleet_.stood = [&] { return all && watch.seconds() > 3.0 ? 3.0 : 0.0; };
    EXPECT_EQ(run(), 0);
    ASSERT_EQ(events("suspended").size(), all ? 1U : 0U);
  }
  const Json event = events("suspended")[0];
  EXPECT_NEAR(event.at("seconds").get<double>(), 3.0, 1.0);
}

/// A rank that writes a checkpoint and stands still, with storage that may stand still
/// too.
class SupervisorOfAStillRank : public SupervisorOfNodes {
 protected:
  SupervisorOfAStillRank() {
    fleet_.nodes = {{"n1", true}, {"n2", true}};
    fleet_.make_reports = [this] {
      ObservedRank rank;
      rank.node = "n1";
      rank.phase = "checkpoint";
      rank.step = 12;
      rank.progress_age = clock_.seconds() < moves_at_ ? clock_.seconds() : 0.0;
      NodeReport node;
      node.node = "n1";
      node.ranks.push_back(rank);
      return std::vector<NodeReport>{node};
    };
  }
  int run_for(double seconds, double answers_at, double moves_at) {
    words_ = {"sleep", std::to_string(seconds)};
    moves_at_ = moves_at;
    SupervisorOptions options;
    options.rules.max_restarts = 0;
    options.hang.quiet_seconds = 0.5;
    options.storage.answer_seconds = 0.3;
    options.storage.wait_seconds = 2.0;
    options.ask_storage = [this, answers_at](const fs::path&) {
      return [this, answers_at] { return clock_.seconds() >= answers_at; };
    };
    clock_ = system::Stopwatch();
    return run(std::move(options));
  }
  system::Stopwatch clock_;
  double moves_at_ = 0.0;
};

TEST_F(SupervisorOfAStillRank, StorageThatDoesNotAnswerIsWaitedForAndNobodyIsBlamed) {
  EXPECT_EQ(run_for(2.2, 1.5, 1.7), 0);
  ASSERT_EQ(events("storage_silent").size(), 1U);
  EXPECT_HAS(events("storage_silent")[0].at("directories").get<std::string>(),
             dir_.path().string());
  EXPECT_EQ(events("storage_answers").size(), 1U);
  EXPECT_TRUE(events("hang").empty());
  EXPECT_TRUE(events("fault").empty());
  EXPECT_FALSE(fs::exists(dir_ / "excluded_nodes.json"));
  EXPECT_HAS(read_text(dir_ / "log.txt"), "no rank is at fault");
}

TEST_F(SupervisorOfAStillRank, StorageThatNeverAnswersIsWaitedForOnlySoLong) {
  EXPECT_EQ(run_for(30, 1e9, 1e9), kExitSettings);
  ASSERT_EQ(events("fault").size(), 1U);
  const Json fault = events("fault")[0];
  EXPECT_HAS(fault.at("cause").get<std::string>(), "has not answered for 2 s");
  EXPECT_EQ(fault.at("rank"), -1);
  EXPECT_EQ(fault.at("node"), "");
  EXPECT_EQ(fault.at("step"), 12);
}

TEST_F(SupervisorOfAStillRank, ARankThatHangsBesideStorageThatAnswersIsNamed) {
  EXPECT_EQ(run_for(30, 0.0, 1e9), kExitSettings);
  ASSERT_EQ(events("hang").size(), 1U);
  EXPECT_EQ(events("fault")[0].at("rank"), 0);
  EXPECT_TRUE(events("storage_silent").empty());
}

}  // namespace
}  // namespace longhaul::cluster
