// Disks that are full, over quota, broken or slow, at any call of three saves: a save may
// fail and must say so, committed checkpoints stay, and the next start goes on.
#include <gtest/gtest.h>

#include <array>
#include <set>

#include "longhaul/base/error.h"
#include "longhaul/checkpoint/write/background_saver.h"
#include "tests/faults/faulty_run.h"
#include "tests/faults/power_cut.h"
#include "tests/faults/tiny_check.h"
#include "tests/faults/tiny_run.h"

namespace longhaul::faults {
namespace {

using checkpoint::SaveReport;

// No code handles the last error specially.
constexpr std::array kErrors = {"ENOSPC",   "EDQUOT",    "EIO",       "ESTALE", "EROFS",
                                "ENOTCONN", "ESHUTDOWN", "ETIMEDOUT", "EPROTO"};
constexpr std::array kWords = {"No space left on device",
                               "Disk quota exceeded",
                               "Input/output error",
                               "Stale file handle",
                               "Read-only file system",
                               "Transport endpoint is not connected",
                               "Cannot send after transport endpoint shutdown",
                               "Connection timed out",
                               "Protocol error"};

Faulty three_saves(const FaultDir& dir) {
  dir.clear();
  Faulty faulty = {dir / "disk", "nosync"};
  faulty.steps = {1, 2, 3};
  fs::create_directories(faulty.dir);
  return faulty;
}

size_t changes_of_three_saves(const FaultDir& dir) {
  Faulty faulty = three_saves(dir);
  faulty.record = dir / "record";
  EXPECT_EQ(run_faulty(faulty).said.size(), 3U);
  return read_record(faulty.record).size();
}

// Checks that committed checkpoints are there, and that a start on a good disk saves
// again.
void expect_nothing_lost(const Ended& ended, const fs::path& run_dir) {
  std::map<int64_t, int> required;
  for (const Said& save : ended.said) {
    if (save.error.empty()) required[save.step] = 1;
  }
  while (required.size() > 2) required.erase(required.begin());
  EXPECT_EQ(ended.signal, 0);
  EXPECT_EQ(problem_of(run_dir, required), "");
  const int attempt =
      run_tiny({run_dir, {3, 4}, 2, 2},
               [&](const SaveReport& report, int) { EXPECT_EQ(report.error, ""); });
  EXPECT_EQ(problem_of(run_dir, {{3, attempt}, {4, attempt}}), "");
}

// Checks that each failed save, and an end before the last save, is explained to a
// person.
void expect_explained(const Ended& ended, size_t error) {
  for (const Said& save : ended.said) {
    if (save.error.empty()) continue;
    EXPECT_NE(save.error.find(kWords[error]), std::string::npos) << save.error;
    EXPECT_NE(save.error.find("was not saved"), std::string::npos) << save.error;
  }
  if (ended.code != 0) {
    EXPECT_EQ(ended.code, 75) << ended.errors;
    EXPECT_NE(ended.errors.find(kWords[error]), std::string::npos) << ended.errors;
  }
}

void fail_calls(const std::string& op, bool forever, size_t first, size_t stride,
                size_t count) {
  const FaultDir dir;
  size_t told = 0;
  for (size_t n = first; n <= count; n += stride) {
    const size_t error = n % kErrors.size();
    Faulty faulty = three_saves(dir);
    faulty.rules = "nosync;fail:path=/checkpoints:op=" + op + ":error=" + kErrors[error] +
                   ":n=" + std::to_string(n) + (forever ? ":forever=1" : "");
    SCOPED_TRACE(faulty.rules);
    const Ended ended = run_faulty(faulty);
    expect_explained(ended, error);
    // A call that fails once ends one save, and the run goes on with the next one.
    if (!forever) {
      EXPECT_EQ(ended.code, 0) << ended.errors;
    }
    expect_nothing_lost(ended, faulty.dir / "run");
    for (const Said& save : ended.said) told += save.error.empty() ? 0 : 1;
    told += ended.code == 0 ? 0 : 1;
    if (::testing::Test::HasFailure()) return;
  }
  // Most calls matter to the save; few only clean up.
  EXPECT_GT(told * stride * 4, count);
}

TEST(StorageFaults, OneFailingChangeLosesNothingAndIsSaid) {
  const FaultDir dir;
  fail_calls("change", false, 1, 1, changes_of_three_saves(dir));
}

TEST(StorageFaults, ADiskThatFailsFromSomeChangeOnLosesNothing) {
  const FaultDir dir;
  fail_calls("change", true, 1, 3, changes_of_three_saves(dir));
}

TEST(StorageFaults, AReadThatFailsWhenASaveIsReadBackLosesNothing) {
  fail_calls("read", false, 1, 2, 20);
}

TEST(StorageFaults, AnErrorThatOnlyCloseReportsIsSaid) {
  fail_calls("close", false, 1, 3, 30);
}

TEST(StorageFaults, ShortWritesAreResumed) {
  const FaultDir dir;
  Faulty faulty = three_saves(dir);
  faulty.rules = "nosync;short:op=write";
  const Ended ended = run_faulty(faulty);
  EXPECT_EQ(ended.code, 0) << ended.errors;
  ASSERT_EQ(ended.said.size(), 3U);
  for (const Said& save : ended.said) EXPECT_EQ(save.error, "");
  expect_nothing_lost(ended, faulty.dir / "run");
}

TEST(StorageFaults, AShortWriteOnAFullDiskIsAFailedSave) {
  const FaultDir dir;
  Faulty faulty = three_saves(dir);
  // Half of the data of the second save is written, and then the disk is full.
  faulty.rules =
      "nosync;short:op=write:path=step_00000002/a1_rank_00001.safetensors:n=1;"
      "fail:op=write:path=step_00000002/a1_rank_00001.safetensors:error=ENOSPC";
  const Ended ended = run_faulty(faulty);
  ASSERT_EQ(ended.said.size(), 3U);
  EXPECT_EQ(ended.said[0].error, "");
  EXPECT_NE(ended.said[1].error.find("rank 1"), std::string::npos) << ended.said[1].error;
  EXPECT_EQ(ended.said[2].error, "");
  EXPECT_FALSE(fs::exists(faulty.dir / "run/checkpoints/step_00000002"));
  expect_nothing_lost(ended, faulty.dir / "run");
}

TEST(StorageFaults, ASlowDiskOnlyTakesLonger) {
  const FaultDir dir;
  Faulty faulty = three_saves(dir);
  faulty.rules = "nosync;slow:op=write:ms=20;slow:op=sync:ms=20";
  const Ended ended = run_faulty(faulty);
  EXPECT_EQ(ended.code, 0) << ended.errors;
  ASSERT_EQ(ended.said.size(), 3U);
  expect_nothing_lost(ended, faulty.dir / "run");
}

}  // namespace
}  // namespace longhaul::faults
