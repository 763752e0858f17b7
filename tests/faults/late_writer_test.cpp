// An attempt that is taken for dead comes back. It is paused before one of its changes to
// the disk; another attempt takes the run over with the real lock and saves the same
// steps; then the first attempt goes on.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>

#include <chrono>
#include <thread>

#include "longhaul/base/json.h"
#include "longhaul/checkpoint/write/commit_protocol.h"
#include "tests/faults/faulty_run.h"
#include "tests/faults/power_cut.h"
#include "tests/faults/tiny_check.h"
#include "tests/faults/tiny_run.h"

namespace longhaul::faults {
namespace {

using checkpoint::SaveReport;

void touch(const fs::path& path) { File::create(path).close(); }

// Changes the lock so that its holder seems to be on another host, which has given no
// sign of life for long. Returns false where there is no lock.
bool make_holder_look_lost(const fs::path& run_dir) {
  const fs::path path = run_dir / "run.lock";
  if (!fs::exists(path)) return false;
  Json lock = read_json(path);
  if (lock.at("released").get<bool>()) return false;
  lock["host"] = "n7";
  lock["boot"] = "another";
  write_text_atomic(path, lock.dump());
  const timespec old = {::time(nullptr) - 1000, 0};
  const timespec times[2] = {old, old};
  return ::utimensat(AT_FDCWD, path.c_str(), times, 0) == 0;
}

bool wait_until_reached(const fs::path& gate, const FaultyTool& tool) {
  while (!fs::exists(gate.string() + ".reached")) {
    siginfo_t info{};
    // The tool may end before it comes to the pause. Its exit status is left for
    // FaultyTool.
    if (::waitid(P_PID, static_cast<id_t>(tool.pid()), &info,
                 WEXITED | WNOHANG | WNOWAIT) == 0 &&
        info.si_pid != 0) {
      return false;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}

enum class Wakes { AfterAll, AfterFirstSave };

// Returns whether the old attempt was paused while it held the run.
bool stand_still_before(size_t n, Wakes wakes, const FaultDir& dir) {
  dir.clear();
  Faulty faulty = {dir / "disk", ""};
  fs::create_directories(faulty.dir);
  const fs::path gate = dir / "gate";
  faulty.rules = "nosync;pause:gate=" + gate.string() + ":n=" + std::to_string(n);
  faulty.steps = {1, 2, 3};
  const fs::path run_dir = faulty.dir / "run";
  FaultyTool old(faulty);
  const bool caught = wait_until_reached(gate, old) && make_holder_look_lost(run_dir);
  if (!caught) {
    touch(gate);
    return false;
  }
  std::vector<std::string> errors;
  const int attempt =
      run_tiny({run_dir, {1, 2, 3, 4}, 2, 2}, [&](const SaveReport& report, int) {
        errors.push_back(report.error);
        if (wakes == Wakes::AfterFirstSave) touch(gate);
      });
  EXPECT_EQ(attempt, 2);
  EXPECT_EQ(errors, std::vector<std::string>(4));
  touch(gate);
  const Ended ended = old.wait();
  EXPECT_EQ(ended.signal, 0);
  EXPECT_EQ(problem_of(run_dir, {{3, 2}, {4, 2}}), "") << ended.errors;
  // The files that the old attempt has left do not disturb the next start either.
  const int next = run_tiny({run_dir, {5}, 2, 2}, [&](const SaveReport& report, int) {
    EXPECT_EQ(report.error, "");
  });
  EXPECT_EQ(next, 3);
  EXPECT_EQ(problem_of(run_dir, {{4, 2}, {5, 3}}), "");
  return true;
}

void stand_still_before_every_change(Wakes wakes, size_t first, size_t stride) {
  const FaultDir dir;
  Faulty faulty = {dir / "disk", "nosync"};
  fs::create_directories(faulty.dir);
  faulty.record = dir / "record";
  faulty.steps = {1, 2, 3};
  ASSERT_EQ(run_faulty(faulty).said.size(), 3U);
  const size_t changes = read_record(faulty.record).size();
  size_t caught = 0;
  for (size_t n = first; n <= changes; n += stride) {
    SCOPED_TRACE("stood still before change " + std::to_string(n));
    caught += stand_still_before(n, wakes, dir) ? 1 : 0;
    if (::testing::Test::HasFailure()) return;
  }
  EXPECT_GT(caught * stride * 2, changes);
}

TEST(LateWriter, WhoWakesAfterItsSuccessorHasSavedSpoilsNothing) {
  stand_still_before_every_change(Wakes::AfterAll, 1, 1);
}

TEST(LateWriter, WhoWakesWhileItsSuccessorSavesSpoilsNothing) {
  stand_still_before_every_change(Wakes::AfterFirstSave, 2, 4);
}

// An attempt may be between its check of the lock and the rename of the manifest when a
// successor begins: then the file to be renamed is gone.
TEST(LateWriter, WhatWasNotCommittedWhenASuccessorBeginsNeverIs) {
  const FaultDir dir;
  const fs::path run_dir = dir / "run";
  run_tiny({run_dir, {1}, 2, 0}, [](const SaveReport&, int) {});
  const fs::path step_dir = run_dir / "checkpoints" / "step_00000001";
  touch(step_dir / "a2_manifest.tmp");
  touch(step_dir / "a2_rank_00000.safetensors");
  touch(step_dir / "a9_state.json");
  const auto target = checkpoint::prepare_step(run_dir / "checkpoints", 1, 3);
  EXPECT_TRUE(target.replaces);
  EXPECT_FALSE(fs::exists(step_dir / "a2_manifest.tmp"));
  EXPECT_FALSE(fs::exists(step_dir / "a2_rank_00000.safetensors"));
  EXPECT_TRUE(fs::exists(step_dir / "a9_state.json"));  // a file of a later attempt
  EXPECT_EQ(problem_of(run_dir, {{1, 1}}), "");
}

// A step that an attempt has committed and a successor has replaced must not be withdrawn
// by the attempt.
TEST(LateWriter, WithdrawsAndAbandonsNothingOfItsSuccessor) {
  const FaultDir dir;
  const fs::path run_dir = dir / "run";
  run_tiny({run_dir, {1}, 2, 0}, [](const SaveReport&, int) {});
  run_tiny({run_dir, {1}, 2, 0}, [](const SaveReport&, int) {});
  checkpoint::SaveTarget old;
  old.step = 1;
  old.dir = run_dir / "checkpoints" / "step_00000001";
  old.prefix = "a1_";
  checkpoint::withdraw_step(old);
  checkpoint::abandon_step(old);
  EXPECT_EQ(problem_of(run_dir, {{1, 2}}), "");
  checkpoint::SaveTarget own = old;
  own.prefix = "a2_";
  checkpoint::abandon_step(own);  // the step was committed: it stays
  EXPECT_EQ(problem_of(run_dir, {{1, 2}}), "");
  checkpoint::withdraw_step(own);
  EXPECT_EQ(problem_of(run_dir, {{1, 2}}), "step 1 is lost");
}

}  // namespace
}  // namespace longhaul::faults
