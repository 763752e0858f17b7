#include "longhaul/cluster/watch/node_watch.h"

#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <fstream>

#include "longhaul/base/error.h"
#include "longhaul/base/process.h"
#include "longhaul/cluster/record/status_file.h"
#include "tests/support/scratch_directory.h"

namespace longhaul::cluster {
namespace {

/// Starts a child that keeps a record as a rank does and then waits for ever. Waits a few
/// seconds for the record, and returns the child's process id.
pid_t start_worker(const fs::path& dir, int rank) {
  const pid_t child = ::fork();
  if (child == 0) {
    run::RankRecord record = run::RankRecord::create(dir, rank, 2);
    record.set("gradients", 7);
    while (true) ::pause();
  }
  for (int i = 0; i < 500 && !fs::exists(run::rank_record_path(dir, rank)); ++i) {
    ::usleep(10'000);
  }
  return child;
}

void reap(pid_t child) { ::waitpid(child, nullptr, 0); }

TEST(NodeWatch, TellsRunningStoppedAndKilledWorkers) {
  const TestDirectory dir;
  const pid_t first = start_worker(dir.path(), 0);
  const pid_t second = start_worker(dir.path(), 1);
  NodeWatch watch("n1", dir.path());
  NodeReport report = watch.report();
  ASSERT_EQ(report.ranks.size(), 2U);
  EXPECT_EQ(report.ranks[0].process, ProcessState::Running);
  EXPECT_EQ(report.ranks[0].step, 7);
  EXPECT_EQ(report.ranks[0].node, "n1");
  EXPECT_GT(report.memory_total_bytes, report.memory_used_bytes);

  watch.signal(SIGSTOP, {1});
  for (int i = 0; i < 100; ++i) {
    report = watch.report();
    if (report.ranks[1].process == ProcessState::Stopped) break;
    ::usleep(10'000);
  }
  EXPECT_EQ(report.ranks[1].process, ProcessState::Stopped);
  EXPECT_EQ(report.ranks[0].process, ProcessState::Running);

  watch.signal(SIGKILL);
  reap(first);
  reap(second);
  report = watch.report();
  EXPECT_TRUE(report.ranks[0].killed());
  EXPECT_TRUE(report.ranks[1].killed());
}

TEST(NodeWatch, WaitingEndsWhenAWorkerDoes) {
  const TestDirectory dir;
  const pid_t child = start_worker(dir.path(), 0);
  NodeWatch watch("n1", dir.path());
  watch.report();
  ::kill(child, SIGKILL);
  const double before = unix_time();
  watch.wait(20.0);
  EXPECT_LT(unix_time() - before, 10.0);
  reap(child);
}

TEST(NodeWatch, ARecordWhoseProcessNumberWasGivenToAnotherIsOfADeadRank) {
  const TestDirectory dir;
  const pid_t writer = ::fork();
  if (writer == 0) {
    run::RankRecord::create(dir.path(), 0, 1);
    ::_exit(0);
  }
  reap(writer);
  // A process that is younger than the record takes the dead one's number.
  ::usleep(1'600'000);
  const pid_t other = ::fork();
  if (other == 0) {
    while (true) ::pause();
  }
  {
    std::fstream file(run::rank_record_path(dir.path(), 0),
                      std::ios::in | std::ios::out | std::ios::binary);
    const auto number = static_cast<int64_t>(other);
    constexpr std::streamoff kPidOffset = 24;
    file.seekp(kPidOffset);
    file.write(reinterpret_cast<const char*>(&number), sizeof number);
  }
  NodeWatch watch("n1", dir.path());
  const NodeReport report = watch.report();
  ASSERT_EQ(report.ranks.size(), 1U);
  EXPECT_EQ(report.ranks[0].pid, other);
  EXPECT_EQ(report.ranks[0].process, ProcessState::Gone);
  watch.signal(SIGKILL);  // must not reach the other process
  EXPECT_EQ(::waitpid(other, nullptr, WNOHANG), 0);
  ::kill(other, SIGKILL);
  reap(other);
}

TEST(NodeWatch, WorkersThatAnEarlierWatchLeftAreEndedBeforeAStart) {
  const TestDirectory dir;
  const pid_t running = start_worker(dir.path(), 0);
  const pid_t stopped = start_worker(dir.path(), 1);
  ::kill(stopped, SIGSTOP);
  NodeWatch watch("n1", dir.path());  // has not looked yet
  watch.forget();
  int status = 0;
  for (const pid_t child : {running, stopped}) {
    EXPECT_EQ(::waitpid(child, &status, WNOHANG), child);
    EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
  }
  const auto notes = watch.take_notes();
  ASSERT_EQ(notes.size(), 1U);
  EXPECT_HAS(notes[0], "2 workers of an earlier start were left and are ended");
}

TEST(NodeWatch, WorkersThatHaveSaidTheirEndAreNoneThatWereLeft) {
  const TestDirectory dir;
  const pid_t child = ::fork();
  if (child == 0) {
    run::RankRecord record = run::RankRecord::create(dir.path(), 0, 1);
    record.finished(0);
    while (true) ::pause();  // the worker is slow to leave
  }
  const auto said = [&] {
    const auto path = run::rank_record_path(dir.path(), 0);
    return fs::exists(path) && run::read_rank_record(path).exit_code == 0;
  };
  for (int look = 0; look < 2000 && !said(); ++look) ::usleep(5000);
  ASSERT_TRUE(said());
  NodeWatch watch("n1", dir.path());
  watch.forget();
  EXPECT_EQ(::waitpid(child, nullptr, WNOHANG), child);
  EXPECT_TRUE(watch.take_notes().empty());
}

TEST(NodeWatch, AfterForgettingNothingIsLeft) {
  const TestDirectory dir;
  const pid_t child = start_worker(dir.path(), 0);
  NodeWatch watch("n1", dir.path());
  EXPECT_EQ(watch.report().ranks.size(), 1U);
  watch.signal(SIGKILL);
  reap(child);
  watch.forget();
  EXPECT_TRUE(watch.report().ranks.empty());
  EXPECT_TRUE(fs::is_empty(dir.path()));
}

TEST(RunStatusNodes, WithoutRanksBesideOthersAreSparesAndExcludedOnesAreSaidSo) {
  NodeReport busy;
  busy.node = "n1";
  busy.ranks.resize(2);
  busy.ranks[1].rank = 1;
  busy.ranks[1].pid = 4711;
  busy.devices = {{"0 H100", 1, 2, 0.5}};
  NodeReport idle;
  idle.node = "n2";
  NodeReport out;
  out.node = "n3";
  run::RunStatus status;
  const auto seen = [](const std::vector<NodeReport>& reports) {
    NodeReports all;
    for (const NodeReport& one : reports) {
      all.push_back(std::make_shared<const NodeReport>(one));
    }
    return all;
  };
  take_reports(status, seen({idle}), {});
  EXPECT_EQ(status.nodes.at(0).state, "up");  // no rank trains yet
  take_reports(status, seen({busy, idle, out}),
               {{"n3", 1.0, "sick"}, {"n9", 1.0, "lost"}});
  ASSERT_EQ(status.nodes.size(), 4U);
  EXPECT_EQ(status.nodes[0].state, "up");
  EXPECT_EQ(status.nodes[0].ranks, (std::vector<int64_t>{0, 1}));
  EXPECT_EQ(status.nodes[0].devices.at(0).memory_total_bytes, 2);
  EXPECT_EQ(status.nodes[1].state, "spare");
  EXPECT_EQ(status.nodes[2].state, "excluded");
  EXPECT_EQ(status.nodes[3].name, "n9");
  EXPECT_EQ(status.nodes[3].state, "excluded");
  EXPECT_EQ(status.ranks.at(1).process, 4711);
  EXPECT_EQ(status.process, ::getpid());
}

TEST(NodeReport, SurvivesItsWayThroughJson) {
  ObservedRank rank;
  // Each field has another value, because a row has no names that tell fields apart.
  rank.rank = 3;
  rank.world = 4;
  rank.pid = 5;
  rank.node = "n2";
  rank.place = {.pp = 10, .dp = 11, .cp = 12, .tp = 13};
  rank.step = 6;
  rank.phase = "update";
  rank.process = ProcessState::Stopped;
  rank.exit_code = 7;
  rank.failure = "why";
  rank.waits = true;
  rank.waits_group = "dp";
  rank.waits_number = 8;
  rank.waits_verb = "all_reduce";
  rank.waits_for = "words";
  rank.waits_age = 1.5;
  rank.phase_age = 2.5;
  rank.progress_age = 3.5;
  rank.gone_age = 4.5;
  rank.steps_done = 9;
  rank.step_age = 5.5;
  rank.wall_seconds = 6.5;
  rank.busy_seconds = 7.5;
  rank.longest_phases = {{"update", 8.5}};
  rank.entered = {{"dp", 7}};
  NodeReport report;
  report.node = "n2";
  report.ranks = {rank};
  report.cpu_busy = 0.5;
  const NodeReport again = NodeReport::from_json(report.to_json());
  EXPECT_EQ(again.ranks.at(0), rank);
  EXPECT_EQ(again.to_json(), report.to_json());
  EXPECT_LT(report.to_json().at("ranks").dump().size(), 200U);
  Json hostile = report.to_json();
  hostile["ranks"][0].push_back(1);
  EXPECT_THROW(NodeReport::from_json(hostile), InputError);
  hostile["ranks"][0].erase(22);
  hostile["ranks"][0].erase(22);
  EXPECT_THROW(NodeReport::from_json(hostile), InputError);
  hostile["ranks"][0] = Json::object();
  EXPECT_THROW(NodeReport::from_json(hostile), InputError);
  hostile = report.to_json();
  hostile["ranks"][0][6] = "asleep";
  EXPECT_THROW(NodeReport::from_json(hostile), std::exception);
  hostile["ranks"] = 7;
  EXPECT_THROW(NodeReport::from_json(hostile), std::exception);
}

}  // namespace
}  // namespace longhaul::cluster
