// Kills a process at each call that changes the disk, and looks at the start after it.
#include <gtest/gtest.h>
#include <signal.h>

#include "longhaul/checkpoint/directory.h"
#include "tests/faults/faulty_run.h"
#include "tests/faults/power_cut.h"
#include "tests/faults/tiny_check.h"
#include "tests/faults/tiny_run.h"

namespace longhaul::faults {
namespace {

using checkpoint::SaveReport;

size_t changes_of(const fs::path& record) {
  size_t count = 0;
  for (const Operation& operation : read_record(record)) {
    if (operation.kind != "marker") ++count;
  }
  return count;
}

// Lets the run go on in this process, undisturbed. The run saves the lost step or the
// next one, and one more. Retention and leftovers must be in order at the end.
void expect_goes_on(const fs::path& run_dir, int64_t after, int ranks) {
  std::vector<Said> said;
  const int attempt = run_tiny({run_dir, {after + 1, after + 2, after + 3}, ranks, 2},
                               [&](const SaveReport& report, int) {
                                 said.push_back({report.step, 0, report.error});
                               });
  ASSERT_EQ(said.size(), 3U);
  for (const Said& save : said) EXPECT_EQ(save.error, "");
  EXPECT_EQ(problem_of(run_dir, {{after + 2, attempt}, {after + 3, attempt}}), "");
  const auto entries = checkpoint::list_checkpoints(run_dir / "checkpoints");
  EXPECT_EQ(entries.size(), 2U);
  for (const auto& entry : entries) EXPECT_TRUE(entry.valid) << entry.problem;
}

void kill_at_every_call(const std::string& when, int ranks) {
  const FaultDir dir;
  Faulty faulty = {dir.path() / "disk", "nosync"};
  faulty.ranks = std::to_string(ranks);
  faulty.steps = {1, 2, 3};
  faulty.record = dir / "record";
  fs::create_directories(faulty.dir);
  const Ended whole = run_faulty(faulty);
  ASSERT_EQ(whole.code, 0) << whole.errors;
  ASSERT_EQ(whole.said.size(), 3U);
  const size_t changes = changes_of(faulty.record);
  ASSERT_GT(changes, 100U);
  faulty.record.clear();
  size_t killed = 0;
  size_t without_any = 0;
  for (size_t n = 1; n <= changes; ++n) {
    SCOPED_TRACE("killed " + when + " change " + std::to_string(n));
    dir.clear();
    fs::create_directories(faulty.dir);
    faulty.rules = "nosync;kill:when=" + when + ":n=" + std::to_string(n);
    const Ended ended = run_faulty(faulty);
    killed += ended.signal == SIGKILL ? 1 : 0;
    const fs::path run_dir = faulty.dir / "run";
    std::map<int64_t, int> required;
    const auto committed = ended.last_committed();
    if (committed) required[committed->step] = 1;
    ASSERT_EQ(problem_of(run_dir, required), "");
    const auto newest = newest_tiny(run_dir);
    without_any += newest ? 0 : 1;
    expect_goes_on(run_dir, committed ? committed->step : 0, ranks);
    if (::testing::Test::HasFailure()) return;
  }
  // The number of calls differs by a few between runs of several threads.
  EXPECT_GE(killed + 10, changes);
  EXPECT_GT(without_any, 10U);
  EXPECT_LT(without_any, changes / 2);
}

TEST(Crash, BeforeAnyCallOfThreeSavesLosesNothingThatWasReported) {
  kill_at_every_call("before", 2);
}

TEST(Crash, AfterAnyCallOfThreeSavesLosesNothingThatWasReported) {
  kill_at_every_call("after", 1);
}

}  // namespace
}  // namespace longhaul::faults
