#include <gtest/gtest.h>
#include <sys/stat.h>

#include "longhaul/base/error.h"
#include "longhaul/checkpoint/directory.h"
#include "longhaul/checkpoint/read/reader.h"
#include "longhaul/run/files.h"
#include "longhaul/run/run_lock.h"
#include "longhaul/run/run_past.h"
#include "tests/support/checkpoint_model.h"
#include "tests/support/rank_threads.h"
#include "tests/support/scratch_directory.h"

namespace longhaul::checkpoint {
namespace {

using testing::element;
using testing::flat_share;
using testing::kOwnersRun;
using testing::kStrangersRun;
using testing::run_ranks;
using testing::save_as;
using testing::save_now;
using testing::side_files;
using testing::small_model;
using testing::TempDir;
using testing::write_file;

SaveReport save(const fs::path& dir, int64_t step, int ranks, int attempt = 1,
                const Json& extra = {}) {
  SaveReport report;
  run_ranks(ranks, [&](comm::Communicator& world) {
    const auto share = flat_share(world.rank(), world.size());
    const SaveReport mine = save_now(dir, step, attempt, share.tensors, world,
                                     {{"step", step}, {"extra", extra}}, side_files());
    if (world.rank() == 0) report = mine;
  });
  return report;
}

std::vector<float> expected_values(const std::string& kind,
                                   const format::TensorSlice& box) {
  const format::TensorSlice whole =
      format::TensorSlice::whole(box.name, box.global_shape, format::DType::F32);
  std::vector<float> all(static_cast<size_t>(whole.num_elements()));
  for (size_t i = 0; i < all.size(); ++i) {
    all[i] = element(kind, box.name, static_cast<int64_t>(i));
  }
  std::vector<float> part(static_cast<size_t>(box.num_elements()));
  format::copy_box(whole, std::as_bytes(std::span(all)), box,
                   std::as_writable_bytes(std::span(part)));
  return part;
}

std::vector<float> read_f32(const CheckpointReader& reader, const std::string& kind,
                            const format::TensorSlice& box) {
  std::vector<float> out(static_cast<size_t>(box.num_elements()));
  reader.read(kind, box, format::DType::F32, std::as_writable_bytes(std::span(out)));
  return out;
}

TEST(Checkpoint, AnyLayoutReadsWhatAnyLayoutWrote) {
  const TempDir dir;
  for (int writers = 1; writers <= 5; ++writers) {
    const SaveReport report = save(dir / std::to_string(writers), 7, writers);
    EXPECT_EQ(report.path, dir / std::to_string(writers) / "step_00000007");
    const CheckpointReader reader = CheckpointReader::open(report.path);
    EXPECT_EQ(reader.step(), 7);
    EXPECT_EQ(report.bytes, reader.manifest().total_bytes());
    EXPECT_EQ(reader.state().at("step"), 7);
    for (const char* kind : {kWeight, kExpAvg, kExpAvgSq}) {
      ASSERT_EQ(reader.tensors(kind).size(), 3U);
      for (const format::TensorSlice& tensor : small_model()) {
        EXPECT_EQ(read_f32(reader, kind, tensor), expected_values(kind, tensor));
        // Reads the tensor in the boxes into which 1 to 4 ranks cut it, along each of its
        // dims.
        for (size_t d = 0; d < tensor.extent.size(); ++d) {
          for (int64_t ranks = 1; ranks <= 4; ++ranks) {
            for (int64_t r = 0; r < ranks; ++r) {
              format::TensorSlice box = tensor;
              box.offset[d] = tensor.extent[d] * r / ranks;
              box.extent[d] = tensor.extent[d] * (r + 1) / ranks - box.offset[d];
              ASSERT_EQ(read_f32(reader, kind, box), expected_values(kind, box));
            }
          }
        }
      }
    }
  }
}

TEST(Checkpoint, FlatRangesComeBackInAnotherDtype) {
  const TempDir dir;
  const CheckpointReader reader = CheckpointReader::open(save(dir.path(), 1, 3).path);
  const format::TensorSlice tensor = small_model()[2];
  std::vector<uint16_t> out(40);
  reader.read_flat_range(kExpAvg, tensor, 11, 51, format::DType::BF16,
                         std::as_writable_bytes(std::span(out)));
  for (size_t i = 0; i < out.size(); ++i) {
    EXPECT_EQ(out[i], format::float_to_bf16(
                          element(kExpAvg, tensor.name, 11 + static_cast<int64_t>(i))));
  }
}

TEST(Checkpoint, TensorsThatSpanManyBlocksReadExactly) {
  const TempDir dir;
  const format::TensorSlice big =
      format::TensorSlice::whole("big", {700, 1001}, format::DType::F32);
  std::vector<float> values(static_cast<size_t>(big.num_elements()));
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i);
  run_ranks(2, [&](comm::Communicator& world) {
    const int64_t half = big.num_elements() / 2;
    std::vector<StateTensor> mine;
    const int64_t begin = world.rank() * half;
    append_flat_range(
        kWeight, big, begin, begin + half,
        std::as_bytes(std::span(values))
            .subspan(static_cast<size_t>(begin) * 4, static_cast<size_t>(half) * 4),
        mine);
    save_now(dir.path(), 1, 1, mine, world);
  });
  const CheckpointReader reader = CheckpointReader::open(dir / "step_00000001");
  EXPECT_EQ(read_f32(reader, kWeight, big), values);
  format::TensorSlice columns = big;
  columns.offset = {0, 999};
  columns.extent = {700, 2};
  const std::vector<float> found = read_f32(reader, kWeight, columns);
  for (size_t row = 0; row < 700; ++row) {
    ASSERT_EQ(found[2 * row], values[row * 1001 + 999]);
    ASSERT_EQ(found[2 * row + 1], values[row * 1001 + 1000]);
  }
  EXPECT_GT(reader.verify(), values.size() * 4);
}

TEST(Checkpoint, ReplicasOfOneBoxAreAllowedPartialOverlapIsNot) {
  const TempDir dir;
  const format::TensorSlice tensor =
      format::TensorSlice::whole("w", {4}, format::DType::F32);
  const std::vector<float> values = {1, 2, 3, 4};
  const auto write = [&](int64_t step, int64_t second_begin) {
    run_ranks(2, [&](comm::Communicator& world) {
      const int64_t begin = world.rank() == 0 ? 0 : second_begin;
      std::vector<StateTensor> mine;
      append_flat_range(
          kWeight, tensor, begin, 4,
          std::as_bytes(std::span(values)).subspan(4 * static_cast<size_t>(begin)), mine);
      save_now(dir.path(), step, 1, mine, world);
    });
  };
  write(1, 0);
  EXPECT_EQ(read_f32(CheckpointReader::open(dir / "step_00000001"), kWeight, tensor),
            values);
  write(2, 2);
  EXPECT_HAS(
      message_of<InputError>([&] { CheckpointReader::open(dir / "step_00000002"); }),
      "overlap");
}

TEST(Checkpoint, AMissingPartIsFoundWhenItIsOpened) {
  const TempDir dir;
  const format::TensorSlice tensor =
      format::TensorSlice::whole("w", {4}, format::DType::F32);
  const std::vector<float> values = {1, 2, 3};
  run_ranks(1, [&](comm::Communicator& world) {
    std::vector<StateTensor> mine;
    append_flat_range(kWeight, tensor, 0, 3, std::as_bytes(std::span(values)), mine);
    save_now(dir.path(), 1, 1, mine, world);
  });
  EXPECT_HAS(
      message_of<InputError>([&] { CheckpointReader::open(dir / "step_00000001"); }),
      "weight of w has 3 of 4 elements");
}

TEST(Checkpoint, AFlippedBitAnywhereIsFound) {
  const TempDir dir;
  const fs::path step = save(dir.path(), 1, 2).path;
  for (const auto& found : fs::recursive_directory_iterator(step)) {
    if (!found.is_regular_file() || found.path().filename() == run::kManifestFile)
      continue;
    const std::string good = read_text(found.path());
    std::string bad = good;
    bad[bad.size() / 2] = static_cast<char>(bad[bad.size() / 2] ^ 1);
    write_file(found.path(), bad);
    EXPECT_THROW(CheckpointReader::open(step).verify(), InputError) << found.path();
    write_file(found.path(), good);
  }
  EXPECT_GT(CheckpointReader::open(step).verify(), 0U);
}

TEST(Checkpoint, AReadOfADamagedBlockNamesFileAndBlock) {
  const TempDir dir;
  const fs::path step = save(dir.path(), 1, 1).path;
  const fs::path file = step / "a1_rank_00000.safetensors";
  std::string text = read_text(file);
  text.back() = static_cast<char>(text.back() ^ 1);
  write_file(file, text);
  const CheckpointReader reader = CheckpointReader::open(step);
  const std::string message =
      message_of<InputError>([&] { read_f32(reader, kWeight, small_model()[0]); });
  EXPECT_HAS(message, file.string());
  EXPECT_HAS(message, "block 0");
}

TEST(Checkpoint, ATruncatedOrMissingFileIsNamed) {
  const TempDir dir;
  const fs::path step = save(dir.path(), 1, 2).path;
  const fs::path file = step / "a1_rank_00001.safetensors";
  fs::resize_file(file, fs::file_size(file) - 1);
  EXPECT_HAS(message_of<InputError>([&] { CheckpointReader::open(step); }), "truncated");
  fs::remove(file);
  EXPECT_HAS(message_of<InputError>([&] { CheckpointReader::open(step); }),
             file.string());
  EXPECT_FALSE(find_latest(dir.path()).has_value());
}

TEST(Checkpoint, WrongShapesNamesAndDtypesAreRefused) {
  const TempDir dir;
  const CheckpointReader reader = CheckpointReader::open(save(dir.path(), 1, 1).path);
  EXPECT_HAS(message_of<InputError>([&] {
               read_f32(
                   reader, kWeight,
                   format::TensorSlice::whole("norm.weight", {6}, format::DType::F32));
             }),
             "'norm.weight' has shape [5], expected [6]");
  EXPECT_HAS(
      message_of<InputError>([&] { read_f32(reader, "nothing", small_model()[0]); }),
      "no nothing of 'embed.weight'");
}

TEST(Checkpoint, HostileManifestsAreRefused) {
  const TempDir dir;
  const fs::path step = save(dir.path(), 1, 1).path;
  const Json good = read_json(step / run::kManifestFile);
  const auto refused = [&](const Json& manifest) {
    write_file(step / run::kManifestFile, manifest.dump());
    return message_of<InputError>([&] { CheckpointReader::open(step); });
  };
  Json bad = good;
  bad["state"]["name"] = "../../state.json";
  EXPECT_HAS(refused(bad), "leaves its directory");
  bad = good;
  bad["version"] = 2;
  EXPECT_HAS(refused(bad), "the format version is 2");
  bad = good;
  bad["ranks"][0]["data"]["size"] = -4;
  EXPECT_HAS(refused(bad), "the field 'size' is ");
  bad = good;
  bad.erase("ranks");
  EXPECT_HAS(refused(bad), "the field 'ranks' is missing");
  write_file(step / run::kManifestFile, "{");
  EXPECT_THROW(CheckpointReader::open(step), InputError);
}

TEST(Checkpoint, AFailureOfOneRankStopsAllAndLeavesNothingHalf) {
  const TempDir dir;
  save(dir.path(), 1, 3);
  std::vector<std::string> messages(3);
  run_ranks(3, [&](comm::Communicator& world) {
    auto share = flat_share(world.rank(), world.size());
    if (world.rank() == 1) share.tensors[0].bytes = share.tensors[0].bytes.first(4);
    messages[static_cast<size_t>(world.rank())] = message_of<Error>(
        [&] { save_now(dir.path(), 2, 1, share.tensors, world, {}, side_files()); });
  });
  EXPECT_HAS(messages[0], "step 2 was not saved: rank 1:");
  EXPECT_HAS(messages[0], "earlier checkpoints are untouched");
  EXPECT_EQ(messages[0], messages[1]);
  EXPECT_EQ(messages[0], messages[2]);
  EXPECT_FALSE(fs::exists(dir / "step_00000002"));
  EXPECT_EQ(find_latest(dir.path())->step, 1);
  EXPECT_GT(CheckpointReader::open(dir / "step_00000001").verify(), 0U);
}

TEST(Checkpoint, APlaceThatCannotBeWrittenIsNoTemporaryError) {
  const TempDir dir;
  write_file(dir / "file", "x");
  run_ranks(2, [&](comm::Communicator& world) {
    EXPECT_HAS(message_of<Error>([&] { save_now(dir / "file", 1, 1, {}, world); }),
               "Not a directory");
  });
}

TEST(Checkpoint, SavingAStepAgainReplacesItInOneStep) {
  const TempDir dir;
  const fs::path step = save(dir.path(), 3, 4, 1, "old").path;
  EXPECT_EQ(save(dir.path(), 3, 2, 2, "new").path, step);
  const CheckpointReader reader = CheckpointReader::open(step);
  EXPECT_EQ(reader.state().at("extra"), "new");
  EXPECT_EQ(reader.manifest().ranks.size(), 2U);
  EXPECT_EQ(read_f32(reader, kWeight, small_model()[0]),
            expected_values(kWeight, small_model()[0]));
  for (const auto& file : fs::directory_iterator(step)) {
    EXPECT_FALSE(file.path().filename().string().starts_with("a1_")) << file.path();
  }
  save(dir.path(), 3, 2, 2,
       "newest");  // saved again by the same attempt, after a rollback
  EXPECT_EQ(CheckpointReader::open(step).state().at("extra"), "newest");
}

TEST(Checkpoint, AFailedReplacementKeepsTheOldOne) {
  const TempDir dir;
  const fs::path step = save(dir.path(), 3, 2, 1, "old").path;
  run_ranks(2, [&](comm::Communicator& world) {
    // The save fails after config.json is written, because a carried file does not exist.
    const std::vector<CarriedFile> files = {{"config.json", {}, "new"},
                                            {"x", dir / "absent", {}}};
    EXPECT_THROW(save_now(dir.path(), 3, 2, {}, world, {{"extra", "new"}}, files), Error);
  });
  const CheckpointReader reader = CheckpointReader::open(step);
  EXPECT_EQ(reader.state().at("extra"), "old");
  EXPECT_EQ(read_text(reader.hf_dir() / "config.json"), testing::kConfigJson);
  EXPECT_GT(reader.verify(), 0U);
  for (const auto& file : fs::directory_iterator(step)) {
    EXPECT_FALSE(file.path().filename().string().starts_with("a2_")) << file.path();
  }
}

TEST(CheckpointDirectory, TheNewestValidOneIsFoundByLooking) {
  const TempDir dir;
  EXPECT_FALSE(find_latest(dir / "absent").has_value());
  save(dir.path(), 5, 1);
  save(dir.path(), 40, 1);
  save(dir.path(), 100, 1);
  fs::remove(dir / "step_00000100" / run::kManifestFile);
  write_file(dir / "step_junk/manifest.json", "{}");
  std::vector<std::string> skipped;
  const auto latest = find_latest(dir.path(), &skipped);
  ASSERT_TRUE(latest.has_value());
  EXPECT_EQ(latest->step, 40);
  ASSERT_EQ(skipped.size(), 1U);
  EXPECT_HAS(skipped[0], "step_00000100 passed over");
}

TEST(CheckpointDirectory, ALinkToNothingIsNoEmptyDirectory) {
  const TestDirectory dir;
  const fs::path link = dir / "checkpoints";
  fs::create_directory_symlink(dir / "gone", link);
  for (const fs::path& path : {link, link / "below"}) {
    EXPECT_THROW(list_checkpoints(path), InputError) << path;
    EXPECT_THROW(has_committed(path), InputError) << path;
    EXPECT_THROW(refuse_dangling(path), InputError) << path;
  }
  fs::create_directory(dir / "gone");
  EXPECT_TRUE(list_checkpoints(link).empty());
  EXPECT_NO_THROW(refuse_dangling(dir / "absent/below"));
}

TEST(CheckpointDirectory, AFileSystemIsProvedAndNothingIsLeft) {
  const TestDirectory dir;
  prove_durable(dir.path(), "n1");
  EXPECT_TRUE(fs::is_empty(dir.path()));
  // No file can be made in /sys on any machine, so prove_durable throws InputError.
  EXPECT_THROW(prove_durable("/sys", "n1"), InputError);
}

TEST(CheckpointDirectory, RetentionCountsVerifiedOnesAndRemovesLeftovers) {
  const TempDir dir;
  for (const int64_t step : {1, 2, 3, 4, 5, 6}) save(dir.path(), step, 1);
  fs::remove(dir / "step_00000002" / run::kManifestFile);   // a save that never ended
  fs::resize_file(dir / "step_00000003/a1_state.json", 1);  // a damaged checkpoint
  fs::remove(dir / "step_00000006" /
             run::kManifestFile);  // a save that may still be under way
  EXPECT_TRUE(apply_retention(dir.path(), {.verified = {4, 5}}).empty());
  // No checkpoint was read back and found good. So only the leftover is deleted.
  EXPECT_EQ(apply_retention(dir.path(), {.keep = 1}),
            (std::vector<fs::path>{dir / "step_00000002"}));
  EXPECT_EQ(apply_retention(dir.path(), {.keep = 1, .verified = {1, 4}}),
            (std::vector<fs::path>{dir / "step_00000001"}));
  EXPECT_EQ(apply_retention(dir.path(), {.keep = 1, .verified = {4, 5}}),
            (std::vector<fs::path>{dir / "step_00000004"}));
  EXPECT_TRUE(fs::exists(dir / "step_00000003"));  // kept for a person to look at
  EXPECT_TRUE(fs::exists(dir / "step_00000005"));
  EXPECT_TRUE(fs::exists(dir / "step_00000006"));
}

TEST(CheckpointDirectory, MilestonesStayForEver) {
  const TempDir dir;
  for (const int64_t step : {2, 4, 6, 8, 10}) save(dir.path(), step, 1);
  const Retention retention{
      .keep = 1, .milestone_every = 4, .verified = {2, 4, 6, 8, 10}};
  EXPECT_EQ(apply_retention(dir.path(), retention),
            (std::vector<fs::path>{dir / "step_00000006", dir / "step_00000002"}));
}

TEST(CheckpointDirectory, WhatIsHeldStaysWhateverItsAge) {
  const TempDir dir;
  for (const int64_t step : {2, 4, 6}) save(dir.path(), step, 1);
  Retention retention{.keep = 1, .verified = {2, 4, 6}};
  retention.held = [](int64_t step) { return step == 2; };
  EXPECT_EQ(apply_retention(dir.path(), retention),
            (std::vector<fs::path>{dir / "step_00000004"}));
  retention.held = {};
  EXPECT_EQ(apply_retention(dir.path(), retention),
            (std::vector<fs::path>{dir / "step_00000002"}));
}

TEST(CheckpointDirectory, WhatIsSetAsideIsFoundByNobody) {
  const TempDir dir;
  save(dir.path(), 5, 1);
  save(dir.path(), 10, 1);
  EXPECT_EQ(set_aside(dir / "step_00000010", "damaged"), dir / "step_00000010.damaged");
  save(dir.path(), 10, 1);
  EXPECT_EQ(set_aside(dir / "step_00000010", "damaged"), dir / "step_00000010.damaged2");
  EXPECT_EQ(find_latest(dir.path())->step, 5);
}

TEST(CheckpointDirectory, ResumeTriesWhatTheSettingSays) {
  const TempDir dir;
  const fs::path run = dir / "run";
  const fs::path all = run / "checkpoints";
  using Kind = ResumeFrom::Kind;
  using Paths = std::vector<fs::path>;
  EXPECT_EQ(resume_candidates({Kind::Latest, 0, {}}, all), Paths{});
  save(all, 5, 1);
  save(all, 10, 1);
  const fs::path five = all / "step_00000005";
  const fs::path ten = all / "step_00000010";
  EXPECT_EQ(resume_candidates({Kind::Latest, 0, {}}, all), (Paths{ten, five}));
  EXPECT_EQ(resume_candidates({Kind::Never, 0, {}}, all), Paths{});
  EXPECT_EQ(resume_candidates({Kind::Step, 5, {}}, all), Paths{five});
  EXPECT_EQ(resume_candidates({Kind::Path, 0, run}, dir / "other"), (Paths{ten, five}));
  EXPECT_EQ(resume_candidates({Kind::Path, 0, five}, dir / "other"), Paths{five});
  const std::string none =
      message_of<InputError>([&] { resume_candidates({Kind::Step, 7, {}}, all); });
  EXPECT_HAS(none, "[checkpoint] resume = 7: " + (all / "step_00000007").string());
  EXPECT_HAS(none, "valid steps in " + all.string() + ": 5, 10");
  EXPECT_THROW(resume_candidates({Kind::Path, 0, dir / "nothing"}, all), InputError);
}

TEST(CheckpointDirectory, ARunWhoseCheckpointsAreAllDamagedDoesNotBeginAnew) {
  const TempDir dir;
  using Kind = ResumeFrom::Kind;
  save(dir.path(), 5, 1);
  fs::resize_file(dir / "step_00000005/a1_state.json", 1);
  EXPECT_HAS(message_of<InputError>(
                 [&] { resume_candidates({Kind::Latest, 0, {}}, dir.path()); }),
             "no checkpoint of this run is whole");
  fs::remove(dir / "step_00000005" /
             run::kManifestFile);  // a first save that never ended
  EXPECT_TRUE(resume_candidates({Kind::Latest, 0, {}}, dir.path()).empty());
}

/// A directory of checkpoints that one run owns. It holds the steps 5 and 10 of this run,
/// step 8 of an older release, which names no run, and step 30 of another run.
class StrangersCheckpoint : public ::testing::Test {
 protected:
  StrangersCheckpoint() {
    for (const int64_t step : {5, 8, 10, 30}) save(dir_.path(), step, 1);
    for (const int64_t step : {5, 10}) save_as(at(step), kOwnersRun);
    save_as(at(30), kStrangersRun);
    run::write_checkpoints_marker(dir_.path(), {kOwnersRun, 0, {}});
  }
  fs::path at(int64_t step) const { return dir_ / run::step_directory_name(step); }
  std::vector<fs::path> candidates(const ResumeFrom& resume) const {
    return resume_candidates(resume, dir_.path());
  }

  TempDir dir_;
  using Kind = ResumeFrom::Kind;
};

TEST_F(StrangersCheckpoint, IsNamedAndNeverTakenUnlessItsPathIs) {
  std::vector<std::string> skipped;
  EXPECT_EQ(find_latest(dir_.path(), &skipped)->step, 10);
  ASSERT_EQ(skipped.size(), 1U);
  EXPECT_HAS(skipped[0], at(30).string() + ": run " + kStrangersRun + " saved it, and " +
                             dir_.path().string() + " is the directory of run " +
                             kOwnersRun);
  EXPECT_EQ(candidates({Kind::Latest, 0, {}}),
            (std::vector<fs::path>{at(10), at(8), at(5)}));
  EXPECT_EQ(candidates({Kind::Path, 0, at(30)}), std::vector<fs::path>{at(30)});
  const std::string said =
      message_of<InputError>([&] { candidates({Kind::Step, 30, {}}); });
  EXPECT_HAS(said, "run " + kStrangersRun + " saved it");
  EXPECT_HAS(said, "valid steps in " + dir_.path().string() + ": 5, 8, 10");
}

TEST_F(StrangersCheckpoint, NeitherDeletesWhatIsOursNorIsDeleted) {
  const Retention retention{.keep = 1, .verified = {5, 8, 10, 30}};
  EXPECT_EQ(apply_retention(dir_.path(), retention),
            (std::vector<fs::path>{at(8), at(5)}));
  EXPECT_TRUE(fs::exists(at(10) / run::kManifestFile));
  EXPECT_TRUE(fs::exists(at(30) / run::kManifestFile));
}

TEST_F(StrangersCheckpoint, IsKeptUnderAnotherNameWhereTheRunSavesTheSameStep) {
  run_ranks(1, [&](comm::Communicator& world) {
    SaverOptions options;
    options.dir = dir_.path();
    options.read_back = false;
    options.marker.run = kOwnersRun;
    Snapshot snapshot;
    snapshot.step = 30;
    const auto share = flat_share(0, 1);
    snapshot.tensors = share.tensors;
    save_checkpoint(options, std::move(snapshot), world);
  });
  EXPECT_EQ(Manifest::read(at(30)).run, kOwnersRun);
  EXPECT_EQ(find_latest(dir_.path())->step, 30);
  const fs::path aside = at(30).string() + ".of_another_run";
  EXPECT_EQ(list_set_aside(dir_.path()), std::vector<fs::path>{aside});
  EXPECT_EQ(Manifest::read(aside).run, kStrangersRun);
}

TEST_F(StrangersCheckpoint, AloneIsNoCheckpointOfTheRunAndNoReasonToBeginAnew) {
  EXPECT_TRUE(has_committed(dir_.path()));
  for (const int64_t step : {5, 8, 10}) fs::remove_all(at(step));
  EXPECT_FALSE(has_committed(dir_.path()));
  const std::string said =
      message_of<InputError>([&] { candidates({Kind::Latest, 0, {}}); });
  EXPECT_HAS(said, "no checkpoint of this run is there");
  EXPECT_HAS(said, "checkpoint.resume = \"" + at(30).string() + "\" to begin from it");
}

TEST_F(StrangersCheckpoint, OfSeveralRunsNoneIsTakenWhereNothingSaysWhoseTheDirectoryIs) {
  fs::remove(dir_ / run::kCheckpointsOwnerFile);
  EXPECT_EQ(find_latest(dir_.path())->step, 8);
  EXPECT_TRUE(has_committed(dir_.path(), kOwnersRun));
  for (const int64_t step : {5, 8, 10}) fs::remove_all(at(step));
  // The directory has no marker, and all checkpoints left in it are of one run. So a
  // program that belongs to no run takes them.
  EXPECT_EQ(find_latest(dir_.path())->step, 30);
  EXPECT_FALSE(has_committed(dir_.path(), kOwnersRun));
}

}  // namespace
}  // namespace longhaul::checkpoint
