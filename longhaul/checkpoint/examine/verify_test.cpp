#include "longhaul/checkpoint/examine/verify.h"

#include <gtest/gtest.h>

#include "longhaul/checkpoint/directory.h"
#include "longhaul/run/files.h"
#include "longhaul/run/run_lock.h"
#include "longhaul/run/run_past.h"
#include "tests/support/checkpoint_model.h"
#include "tests/support/rank_threads.h"
#include "tests/support/weights_files.h"

namespace longhaul::checkpoint {
namespace {

using testing::TempDir;

class VerifyRun : public ::testing::Test {
 protected:
  VerifyRun() {
    for (const int64_t step : {4, 8, 12}) save(step);
  }
  void save(int64_t step) const {
    testing::run_ranks(2, [&](comm::Communicator& world) {
      testing::save_now(run_ / "checkpoints", step, 1,
                        testing::flat_share(world.rank(), 2).tensors, world, {},
                        testing::side_files());
    });
  }
  fs::path at(int64_t step) const {
    return run_ / "checkpoints" / run::step_directory_name(step);
  }
  void flip_a_bit(int64_t step) const {
    const fs::path file = at(step) / "a1_rank_00001.safetensors";
    std::string bytes = read_text(file);
    bytes[bytes.size() - 3] ^= 4;
    testing::write_file(file, bytes);
  }
  RunVerdict verify(const fs::path& path) {
    told_.clear();
    return verify_run(path, [&](const std::string& line) { told_ += line + "\n"; });
  }
  RunVerdict verify() { return verify(run_); }

  TempDir dir_;
  fs::path run_ = dir_ / "run";
  std::string told_;
};

TEST_F(VerifyRun, EveryCheckpointIsReadAndNamed) {
  const RunVerdict verdict = verify();
  EXPECT_EQ(verdict.whole, 3);
  EXPECT_GT(verdict.bytes, 0U);
  EXPECT_TRUE(verdict.broken.empty());
  for (const char* name : {"step_00000004: ", "step_00000008: ", "step_00000012: "}) {
    EXPECT_HAS(told_, name);
  }
  EXPECT_EQ(verify(run_ / "checkpoints").whole, 3);
}

TEST_F(VerifyRun, ABrokenOneIsFoundWhereverItStandsAndTheOthersAreReadAllTheSame) {
  for (const int64_t step : {4, 8, 12}) {
    const std::string good = read_text(at(step) / "a1_rank_00001.safetensors");
    flip_a_bit(step);
    const RunVerdict verdict = verify();
    EXPECT_EQ(verdict.whole, 2) << step;
    ASSERT_EQ(verdict.broken.size(), 1U) << step;
    EXPECT_HAS(verdict.broken[0], at(step).string());
    EXPECT_HAS(told_, at(step).filename().string() + ": BROKEN: ");
    testing::write_file(at(step) / "a1_rank_00001.safetensors", good);
  }
}

TEST_F(VerifyRun, ANewestOneThatLostAFileOrItsManifestsTextIsNotPassedOver) {
  fs::remove(at(12) / "a1_rank_00000.safetensors");
  testing::write_file(at(8) / run::kManifestFile, "{");
  const RunVerdict verdict = verify();
  EXPECT_EQ(verdict.whole, 1);
  ASSERT_EQ(verdict.broken.size(), 2U);
  EXPECT_HAS(verdict.broken[0], at(8).string());
  EXPECT_HAS(verdict.broken[1], "a1_rank_00000.safetensors");
}

TEST_F(VerifyRun, WhatIsNoCheckpointIsNamedAndNotCalledBroken) {
  fs::remove(at(12) / run::kManifestFile);
  set_aside(at(4), "superseded");
  EXPECT_TRUE(verify().broken.empty());
  EXPECT_HAS(told_, "step_00000012: no checkpoint: its save never ended");
  EXPECT_HAS(told_, "step_00000004.superseded: set aside");
  const run::RunLock lock = run::RunLock::acquire(run_);
  verify();
  EXPECT_HAS(told_, "step_00000012: no checkpoint: a save is under way");
}

TEST_F(VerifyRun, OneThatTheRunCommittedAndThatIsNotThereIsMissing) {
  run::RunPast record = run::RunPast::begin();
  record.newest = 12;
  record.write(run_);
  EXPECT_TRUE(verify().broken.empty());
  fs::remove_all(at(12));
  const RunVerdict verdict = verify();
  ASSERT_EQ(verdict.broken.size(), 1U);
  EXPECT_HAS(verdict.broken[0], at(12).string());
  EXPECT_HAS(told_, "step_00000012: MISSING");
  // A reader that takes the older checkpoint says which one it passed over.
  std::vector<std::string> skipped;
  EXPECT_EQ(find_checkpoint(run_, &skipped), at(8));
  ASSERT_EQ(skipped.size(), 1U);
  EXPECT_HAS(skipped[0], "step_00000012 passed over: it was committed");
}

TEST_F(VerifyRun, OneThatLiesWhereTheRunWroteItBeforeIsNotMissing) {
  const fs::path old = run_ / "old";
  fs::create_directories(old / run::step_directory_name(20));
  testing::write_file(old / run::step_directory_name(20) / run::kManifestFile, "{}");
  run::RunPast record = run::RunPast::begin();
  record.newest = 20;
  record.checkpoints = run::RunPast::place_of(old);
  record.write(run_);
  EXPECT_TRUE(verify().broken.empty());
  EXPECT_FALSE(missing_newest(run_, run_ / "checkpoints"));
  fs::remove_all(old);
  EXPECT_EQ(verify().broken.size(), 1U);
}

TEST_F(VerifyRun, ACopyUnderAnotherNumberAndAnotherRunsAreBrokenWhateverTheirHashes) {
  fs::copy(at(8), at(20), fs::copy_options::recursive);
  testing::save_as(at(4), testing::kOwnersRun);
  testing::save_as(at(12), testing::kStrangersRun);
  run::write_checkpoints_marker(run_ / "checkpoints", {testing::kOwnersRun, 0, {}});
  const RunVerdict verdict = verify();
  EXPECT_EQ(verdict.whole, 2);
  ASSERT_EQ(verdict.broken.size(), 2U);
  EXPECT_HAS(told_, "step_00000012: OF ANOTHER RUN: ");
  EXPECT_HAS(verdict.broken[0], "run " + testing::kStrangersRun + " saved it");
  EXPECT_HAS(told_, "step_00000020: BROKEN: ");
  EXPECT_HAS(verdict.broken[1], "its manifest is of step 8");
}

TEST_F(VerifyRun, ACommittedOneWithoutItsManifestIsMissing) {
  std::string events;
  for (const int64_t step : {4, 8, 12}) {
    events += json_text(Json{{"event", "checkpoint"}, {"step", step}}) + "\n";
  }
  testing::write_file(run_ / run::kEventsFile, events);
  const auto keep = [&](int most) {
    testing::write_file(run_ / run::kConfigFile,
                        "model.config = \"m\"\ndata.seq_len = 8\n"
                        "data.train = [{synthetic = 1}]\nbatch.global_size = 1\n"
                        "run.dir = \"r\"\nrun.steps = 1\noptimizer.lr = 1.0\n"
                        "checkpoint.keep = " +
                            std::to_string(most));
  };
  keep(3);
  fs::remove(at(4) / run::kManifestFile);
  RunVerdict verdict = verify();
  ASSERT_EQ(verdict.broken.size(), 1U) << told_;
  EXPECT_HAS(verdict.broken[0],
             at(4).string() + ": the run committed it, and manifest.json is not there");
  EXPECT_HAS(told_, "step_00000004: MISSING");
  // With keep = 2 the run may have begun to delete step 4.
  keep(2);
  EXPECT_TRUE(verify().broken.empty()) << told_;
  // The run went back to step 8, and was killed while it saved step 12 again.
  fs::remove(at(12) / run::kManifestFile);
  EXPECT_EQ(verify().broken.size(), 2U) << told_;
  events += json_text(Json{{"event", "start"}, {"step", 8}}) + "\n";
  testing::write_file(run_ / run::kEventsFile, events);
  verdict = verify();
  ASSERT_EQ(verdict.broken.size(), 1U) << told_;
  EXPECT_HAS(verdict.broken[0], at(4).string());
}

TEST_F(VerifyRun, TheNewestWithoutItsManifestIsMissing) {
  run::RunPast record = run::RunPast::begin();
  record.newest = 12;
  record.write(run_);
  fs::remove(at(12) / run::kManifestFile);
  const RunVerdict verdict = verify();
  ASSERT_EQ(verdict.broken.size(), 1U);
  EXPECT_HAS(told_, "step_00000012: MISSING: the run committed it, and manifest.json is");
  std::vector<std::string> skipped;
  EXPECT_EQ(find_checkpoint(run_, &skipped), at(8));
  ASSERT_EQ(skipped.size(), 1U);
}

}  // namespace
}  // namespace longhaul::checkpoint
