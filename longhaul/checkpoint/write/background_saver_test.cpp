#include "longhaul/checkpoint/write/background_saver.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <optional>
#include <string>
#include <thread>

#include "longhaul/base/error.h"
#include "longhaul/checkpoint/directory.h"
#include "longhaul/checkpoint/manifest.h"
#include "longhaul/checkpoint/read/reader.h"
#include "longhaul/checkpoint/write/commit_protocol.h"
#include "longhaul/comm/ledger.h"
#include "longhaul/run/files.h"
#include "longhaul/run/rank_record.h"
#include "longhaul/run/run_lock.h"
#include "tests/support/checkpoint_model.h"
#include "tests/support/rank_threads.h"

namespace longhaul::checkpoint {
namespace {

using testing::flat_share;
using testing::FlatState;
using testing::run_ranks;
using testing::side_files;
using testing::small_model;
using testing::TempDir;
using testing::write_file;

Snapshot snapshot_of(int64_t step, const FlatState& share) {
  Snapshot snapshot;
  snapshot.step = step;
  snapshot.tensors = share.tensors;
  snapshot.state = {{"step", step}};
  snapshot.files = side_files();
  return snapshot;
}

SaverOptions options_in(const fs::path& dir) {
  SaverOptions options;
  options.dir = dir;
  return options;
}

std::vector<float> read_weight(const fs::path& step, const format::TensorSlice& tensor) {
  std::vector<float> values(static_cast<size_t>(tensor.num_elements()));
  CheckpointReader::open(step).read(kWeight, tensor, format::DType::F32,
                                    std::as_writable_bytes(std::span(values)));
  return values;
}

TEST(BackgroundSaver, WritesWhatTheStateWasWhenItWasCalled) {
  const TempDir dir;
  run_ranks(3, [&](comm::Communicator& world) {
    FlatState share = flat_share(world.rank(), world.size());
    BackgroundSaver saver(options_in(dir.path()), world);
    std::optional<SaveReport> before;
    saver.start(snapshot_of(5, share), before);
    EXPECT_TRUE(saver.under_way());
    EXPECT_FALSE(before.has_value());
    // Changes the values at once, as training would.
    std::fill(share.values.begin(), share.values.end(), -1.0F);
    const auto report = saver.wait();
    ASSERT_TRUE(report.has_value());
    EXPECT_EQ(report->error, "");
    EXPECT_EQ(report->step, 5);
    EXPECT_GT(report->bytes, 1000U);
    EXPECT_GE(report->seconds, report->stall);
    EXPECT_FALSE(saver.under_way());
    EXPECT_FALSE(saver.poll().has_value());
  });
  for (const format::TensorSlice& tensor : small_model()) {
    const std::vector<float> found = read_weight(dir / "step_00000005", tensor);
    for (size_t i = 0; i < found.size(); ++i) {
      ASSERT_EQ(found[i],
                testing::element(kWeight, tensor.name, static_cast<int64_t>(i)));
    }
  }
}

TEST(BackgroundSaver, SaysWhatALongWaitIsFor) {
  const TempDir dir;
  SaverOptions options = options_in(dir.path());
  std::vector<std::string> told;
  options.tell = [&](const std::string& line) { told.push_back(line); };
  options.tell_after_seconds = 0.0;
  run_ranks(1, [&](comm::Communicator& world) {
    BackgroundSaver saver(options, world);
    std::optional<SaveReport> before;
    saver.start(snapshot_of(5, flat_share(0, 1)), before);
    saver.wait();
  });
  ASSERT_EQ(told.size(), 1U);  // the next line is due after a second
  EXPECT_HAS(told[0], "for the checkpoint of step 5: " + dir.path().string());
}

TEST(BackgroundSaver, AStateThatNeverArrivesEndsTheWaitByWhatTheLookSays) {
  const TempDir dir;
  run_ranks(2, [&](comm::Communicator& world) {
    const FlatState share = flat_share(world.rank(), world.size());
    SaverOptions options = options_in(dir.path());
    std::atomic<bool> waits = false;
    options.look = [&] {
      if (waits) fail_temporary("comm", "a rank is lost{}", "");
    };
    BackgroundSaver saver(options, world);
    Snapshot snapshot = snapshot_of(5, share);
    snapshot.owner = std::make_shared<int>(0);
    snapshot.ready = [&](const std::function<void()>& look) {
      while (true) {
        look();
        waits = true;
        std::this_thread::yield();
      }
    };
    std::optional<SaveReport> before;
    saver.start(std::move(snapshot), before);
    while (!waits) std::this_thread::yield();
    world.barrier_wait();
    EXPECT_THROW(saver.wait(), TemporaryError);
    EXPECT_FALSE(saver.under_way());  // nobody reads the state any more
  });
  EXPECT_TRUE(list_checkpoints(dir.path()).empty());
}

TEST(BackgroundSaver, ASaveWaitsForTheOneBeforeItAndNoneIsSkipped) {
  const TempDir dir;
  run_ranks(2, [&](comm::Communicator& world) {
    const FlatState share = flat_share(world.rank(), world.size());
    BackgroundSaver saver(options_in(dir.path()), world);
    std::vector<int64_t> ended;
    for (int64_t step = 1; step <= 6; ++step) {
      std::optional<SaveReport> before;
      saver.start(snapshot_of(step, share), before);
      if (before) ended.push_back(before->step);
      if (step % 2 == 0) {
        if (const auto report = saver.poll()) ended.push_back(report->step);
      }
    }
    if (const auto report = saver.wait()) ended.push_back(report->step);
    EXPECT_EQ(ended, (std::vector<int64_t>{1, 2, 3, 4, 5, 6}));
  });
  EXPECT_EQ(list_checkpoints(dir.path()).size(), 6U);
}

TEST(BackgroundSaver, ItsCommitNeedsNoHelpOfTheTrainingThreads) {
  const TempDir dir;
  run_ranks(2, [&](comm::Communicator& world) {
    const FlatState share = flat_share(world.rank(), world.size());
    BackgroundSaver saver(options_in(dir.path()), world);
    std::optional<SaveReport> before;
    saver.start(snapshot_of(7, share), before);
    // No rank calls poll() here, as in a step that takes minutes or never ends.
    bool durable = false;
    for (int i = 0; i < 2000 && !durable; ++i) {
      durable = fs::exists(dir / "step_00000007" / run::kManifestFile);
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    EXPECT_TRUE(durable);
  });
  EXPECT_GT(CheckpointReader::open(dir / "step_00000007").verify(), 0U);
}

TEST(BackgroundSaver, WhoeverKeepsARecordIsToldByTheCommitItselfAndCannotFailASave) {
  const TempDir dir;
  std::atomic<int64_t> kept = 0;
  run_ranks(2, [&](comm::Communicator& world) {
    const FlatState share = flat_share(world.rank(), world.size());
    SaverOptions options = options_in(dir.path());
    if (world.rank() == 0) {
      options.keeps = [&](std::optional<int64_t> newest) {
        kept = newest.value_or(-1);
        if (newest == 2) throw InputError("file", "the disk is full");
      };
    }
    BackgroundSaver saver(options, world);
    std::optional<SaveReport> before;
    saver.start(snapshot_of(1, share), before);
    // No rank calls poll() or wait() yet: the thread of the save calls `keeps`.
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (kept != 1 && std::chrono::steady_clock::now() < deadline) {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    EXPECT_EQ(kept, 1);
    EXPECT_EQ(saver.wait()->not_kept, "");
    saver.start(snapshot_of(2, share), before);
    const auto report = saver.wait();
    EXPECT_EQ(report->error, "");
    EXPECT_EQ(report->not_kept, world.rank() == 0 ? "the disk is full" : "");
  });
  EXPECT_EQ(find_latest(dir.path())->step, 2);
}

TEST(BackgroundSaver, OldOnesGoOnlyWhenNewerOnesWereReadBack) {
  for (const bool read_back : {true, false}) {
    const TempDir dir;
    run_ranks(2, [&](comm::Communicator& world) {
      const FlatState share = flat_share(world.rank(), world.size());
      SaverOptions options = options_in(dir.path());
      options.keep = 2;
      options.milestone_every = 4;
      options.read_back = read_back;
      BackgroundSaver saver(options, world);
      for (int64_t step = 1; step <= 7; ++step) {
        std::optional<SaveReport> before;
        saver.start(snapshot_of(step, share), before);
      }
      saver.wait();
      EXPECT_EQ(saver.take_notes().size(), world.rank() == 0 ? 4U : 0U);
    });
    std::vector<int64_t> steps;
    for (const CheckpointEntry& entry : list_checkpoints(dir.path())) {
      steps.push_back(entry.step);
    }
    EXPECT_EQ(steps, (std::vector<int64_t>{4, 6, 7}));
  }
}

TEST(BackgroundSaver, AFailedSaveIsReportedOnEveryRankAndTheNextOneWorks) {
  const TempDir dir;
  run_ranks(3, [&](comm::Communicator& world) {
    const FlatState share = flat_share(world.rank(), world.size());
    FlatState broken = flat_share(world.rank(), world.size());
    if (world.rank() == 2) broken.tensors[0].bytes = broken.tensors[0].bytes.first(4);
    BackgroundSaver saver(options_in(dir.path()), world);
    std::optional<SaveReport> before;
    saver.start(snapshot_of(1, broken), before);
    saver.start(snapshot_of(2, share), before);
    ASSERT_TRUE(before.has_value());
    EXPECT_HAS(before->error, "step 1 was not saved: rank 2:");
    EXPECT_EQ(saver.wait()->error, "");
  });
  EXPECT_FALSE(fs::exists(dir / "step_00000001"));
  EXPECT_EQ(find_latest(dir.path())->step, 2);
}

TEST(SaveCheckpoint, AFailureIsToldAsAnotherRanksWhereItIsOne) {
  const TempDir dir;
  run_ranks(3, [&](comm::Communicator& world) {
    const fs::path records = dir / "records";
    world.ledger().attach(std::make_shared<run::RankRecord>(
        run::RankRecord::create(records, world.rank(), world.size())));
    FlatState share = flat_share(world.rank(), world.size());
    if (world.rank() == 2) share.tensors[0].bytes = share.tensors[0].bytes.first(4);
    const std::string told = message_of<Error>([&] {
      save_checkpoint(options_in(dir / "saves"), snapshot_of(1, share), world);
    });
    EXPECT_HAS(told, "step 1 was not saved: rank 2:");
    const fs::path record = run::rank_record_path(records, world.rank());
    EXPECT_EQ(run::read_rank_record(record).told, world.rank() != 2);
  });
}

TEST(BackgroundSaver, TheFailureThatIsToldIsNotThatOfARankWhoseWritingItCutShort) {
  const TempDir dir;
  run_ranks(3, [&](comm::Communicator& world) {
    FlatState share = flat_share(world.rank(), world.size());
    if (world.rank() == 2) share.tensors[0].bytes = share.tensors[0].bytes.first(4);
    // Rank 1 has so much to write that it is still writing when rank 2's failure is
    // known.
    const std::vector<float> values(world.rank() == 1 ? 1 << 16 : 0);
    for (int i = 0; i < 256 && !values.empty(); ++i) {
      share.tensors.push_back({kWeight,
                               format::TensorSlice::whole("more." + std::to_string(i),
                                                          {1 << 16}, format::DType::F32),
                               std::as_bytes(std::span(values))});
    }
    BackgroundSaver saver(options_in(dir.path()), world);
    std::optional<SaveReport> before;
    saver.start(snapshot_of(1, share), before);
    const auto report = saver.wait();
    EXPECT_HAS(report->error, "step 1 was not saved: rank 2:");
    EXPECT_EQ(report->mine, world.rank() == 2);
    EXPECT_EQ(report->error.find("ranks failed"), std::string::npos) << report->error;
  });
}

TEST(BackgroundSaver, AnAttemptThatLostTheLockCommitsNothing) {
  const TempDir dir;
  run::RunLock old = run::RunLock::acquire(dir.path());
  const auto lose_it = [&] {
    Json taken = read_json(dir / "run.lock");
    taken["token"] = "another";
    taken["attempt"] = 2;
    write_file(dir / "run.lock", taken.dump());
  };
  run_ranks(1, [&](comm::Communicator& world) {
    SaverOptions options = options_in(dir / "checkpoints");
    options.lock = &old;
    const FlatState share = flat_share(0, 1);
    BackgroundSaver saver(options, world);
    std::optional<SaveReport> before;
    saver.start(snapshot_of(1, share), before);
    EXPECT_EQ(saver.wait()->error, "");
    lose_it();
    EXPECT_HAS(message_of<Error>([&] { saver.start(snapshot_of(2, share), before); }),
               "no longer owns the run");
    // Here the run's lock is lost after the save has begun: the commit checks the lock
    // again.
    const SaveTarget target = prepare_step(dir / "checkpoints", 3, 1);
    write_rank(target, 0, share.tensors);
    CommitContent content;
    content.lock = &old;
    EXPECT_HAS(message_of<Error>([&] { commit_step(target, content); }),
               "no longer owns the run");
  });
  EXPECT_EQ(find_latest(dir / "checkpoints")->step, 1);
}

TEST(SaveFiles, ALateAttemptCannotReplaceWhatItsSuccessorCommitted) {
  const TempDir dir;
  const FlatState share = flat_share(0, 1);
  const SaveTarget late = prepare_step(dir.path(), 3, 1);
  const SaveTarget successor = prepare_step(dir.path(), 3, 2);
  CommitContent second;
  second.attempt = 2;
  second.state = {{"by", 2}};
  second.hf = side_files();
  write_rank(successor, 0, share.tensors);
  commit_step(successor, second);
  // The first attempt goes on after a pause. It had checked the lock before attempt 2
  // began.
  fs::create_directories(late.dir);
  write_rank(late, 0, share.tensors);
  CommitContent first;
  first.state = {{"by", 1}};
  EXPECT_HAS(message_of<Error>([&] { commit_step(late, first); }),
             "another attempt has saved this step");
  EXPECT_EQ(CheckpointReader::open(successor.dir).state().at("by"), 2);
  abandon_step(late);
  EXPECT_GT(CheckpointReader::open(successor.dir).verify(), 0U);
  // A late attempt that only begins a save does not remove its successor's files either.
  const SaveTarget third = prepare_step(dir.path(), 4, 3);
  write_rank(third, 0, share.tensors);
  prepare_step(dir.path(), 4, 1);
  EXPECT_TRUE(rank_is_written(third, 0));
}

TEST(SaveFiles, WhatTheDeviceGivesBackWrongIsFound) {
  const TempDir dir;
  const SaveTarget target = prepare_step(dir.path(), 1, 1);
  write_rank(target, 0, flat_share(0, 1).tensors);
  read_back(target, 0);
  const fs::path data = target.dir / "a1_rank_00000.safetensors";
  std::string bytes = read_text(data);
  bytes[bytes.size() / 2] = static_cast<char>(bytes[bytes.size() / 2] ^ 1);
  write_file(data, bytes);
  EXPECT_HAS(message_of<InputError>([&] { read_back(target, 0); }), "block 0");
}

TEST(Staging, CopiesWithAnyNumberOfThreads) {
  std::vector<std::byte> bytes(10'000'019);
  for (size_t i = 0; i < bytes.size(); ++i)
    bytes[i] = static_cast<std::byte>(i * 7 % 251);
  const std::span<const std::byte> all(bytes);
  const format::TensorSlice slice =
      format::TensorSlice::whole("w", {1}, format::DType::U8);
  const std::vector<StateTensor> tensors = {{"a", slice, all.first(3)},
                                            {"b", slice, all.subspan(3, 9'000'000)},
                                            {"c", slice, all.subspan(9'000'003)}};
  Staging staging;
  for (const int threads : {1, 2, 3, 8}) {
    const std::vector<StateTensor> copies = staging.copy(tensors, threads);
    ASSERT_EQ(copies.size(), 3U);
    for (size_t i = 0; i < 3; ++i) {
      EXPECT_EQ(copies[i].kind, tensors[i].kind);
      ASSERT_EQ(copies[i].bytes.size(), tensors[i].bytes.size());
      EXPECT_EQ(std::memcmp(copies[i].bytes.data(), tensors[i].bytes.data(),
                            tensors[i].bytes.size()),
                0);
    }
    const std::byte* const end = copies[2].bytes.data() + copies[2].bytes.size();
    EXPECT_LE(static_cast<uint64_t>(end - copies[0].bytes.data()),
              staging_bytes(tensors));
  }
}

}  // namespace
}  // namespace longhaul::checkpoint
