#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <map>
#include <memory>
#include <mutex>
#include <thread>

#include "longhaul/base/error.h"
#include "longhaul/base/hash.h"
#include "longhaul/checkpoint/directory.h"
#include "longhaul/checkpoint/mirror/mirror_reader.h"
#include "longhaul/checkpoint/mirror/mirror_thread.h"
#include "longhaul/checkpoint/mirror/mirror_writer.h"
#include "longhaul/checkpoint/read/reader.h"
#include "longhaul/run/files.h"
#include "tests/support/checkpoint_model.h"
#include "tests/support/rank_threads.h"

namespace longhaul::checkpoint {
namespace {

using testing::flat_share;
using testing::message_of;
using testing::run_ranks;
using testing::save_now;
using testing::side_files;
using testing::TempDir;
using testing::write_file;

constexpr int kRanks = 2;
const std::string kRun(32, 'a');

/// A store whose objects are files of a directory. What comes back may be planted.
class DirectoryStore : public MirrorStore {
 public:
  std::string place() const override { return "s3://bucket/run"; }

  std::vector<Entry> list(const std::string& below) override {
    listed.push_back(below);
    std::vector<Entry> entries;
    const fs::path from = below.empty() ? dir_.path() : dir_ / below;
    if (!fs::exists(from)) return entries;
    for (const auto& file : fs::recursive_directory_iterator(from)) {
      if (!file.is_regular_file()) continue;
      entries.push_back(
          {fs::relative(file.path(), dir_.path()).string(), file.file_size()});
    }
    std::ranges::sort(entries, {}, [](const Entry& entry) { return entry.name; });
    return entries;
  }

  std::string put(const fs::path& from, const std::string& name) override {
    while (held && !stopped) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    if (stopped || name == refused) throw TemporaryError("objects", "the store is away");
    const std::string text = longhaul::read_text(from);
    const std::lock_guard lock(mutex);
    write_file(dir_ / name, text);
    order.push_back(name);
    return Manifest::FileEntry::of(name, text).hash;
  }

  std::string fetch(const std::string& name, const fs::path& to) override {
    if (name == refused) throw TemporaryError("objects", "the store is away");
    const std::string text = longhaul::read_text(dir_ / name);
    write_file(to, text);
    return Manifest::FileEntry::of(name, text).hash;
  }

  void put_text(const std::string& text, const std::string& name) override {
    const std::lock_guard lock(mutex);
    write_file(dir_ / name, text);
    order.push_back(name);
  }

  std::optional<std::string> read_text(const std::string& name) override {
    if (name == denied) throw InputError("objects", "no permission");
    texts_read.push_back(name);
    if (!fs::exists(dir_ / name)) return std::nullopt;
    return longhaul::read_text(dir_ / name);
  }

  void remove(const std::string& name) override {
    const std::lock_guard lock(mutex);
    fs::remove(dir_ / name);
    removed.push_back(name);
  }
  void remove_all(const std::string& below) override {
    const std::lock_guard lock(mutex);
    fs::remove_all(dir_ / below);
    removed.push_back(below);
  }
  void stop() override { stopped = true; }
  int64_t retries() const override { return 0; }

  bool has(const std::string& name) const { return fs::exists(dir_ / name); }
  fs::path path(const std::string& name) const { return dir_ / name; }

  std::string denied;              ///< read_text() throws for this name
  std::string refused;             ///< fetch() and put() throw for this name
  std::atomic<bool> held = false;  ///< put() waits while this is true
  std::vector<std::string> order;
  std::vector<std::string> removed;
  std::vector<std::string> listed;
  std::vector<std::string> texts_read;
  std::mutex mutex;
  std::atomic<bool> stopped = false;

 private:
  TempDir dir_;
};

std::string in_step(int64_t step, const std::string& name) {
  return run::step_directory_name(step) + "/" + name;
}

fs::path saved(const fs::path& dir, int64_t step, int attempt) {
  run_ranks(kRanks, [&](comm::Communicator& world) {
    save_now(dir, step, attempt, flat_share(world.rank(), kRanks).tensors, world,
             {{"step", step}}, side_files());
  });
  return dir / run::step_directory_name(step);
}

/// Saves a step and mirrors it, each rank its files.
fs::path mirrored(DirectoryStore& store, const fs::path& dir, int64_t step, int attempt) {
  const fs::path path = saved(dir, step, attempt);
  const Manifest manifest = Manifest::read(path);
  MirrorListing listing(store);
  begin_mirror_step(listing, manifest, attempt);
  for (int rank = 0; rank < kRanks; ++rank) {
    send_mirror_files(store, path, manifest, rank, kRanks);
  }
  end_mirror_step(listing, manifest, 0.0);
  return path;
}

std::vector<int64_t> thin_out(DirectoryStore& store, int64_t keep, int64_t milestones) {
  MirrorListing listing(store);
  return thin_out_mirror(listing, keep, milestones);
}

std::vector<int64_t> steps_of(DirectoryStore& store) {
  std::vector<int64_t> steps;
  for (const MirrorStep& found : list_mirror(store)) steps.push_back(found.step);
  return steps;
}

TEST(Mirror, NamesManifestsByTheirAttempt) {
  EXPECT_EQ(mirror_manifest_name(12), "manifest.a12.json");
  EXPECT_EQ(mirror_manifest_attempt("manifest.a12.json"), 12);
  for (const char* other : {"manifest.json", "manifest.a.json", "manifest.a1.json.tmp",
                            "superseded.a1.json", "a1_rank_00000.json"}) {
    EXPECT_EQ(mirror_manifest_attempt(other), std::nullopt) << other;
  }
}

TEST(Mirror, HasTheFilesUnderTheirNamesAndTheManifestLast) {
  const TempDir dir;
  DirectoryStore store;
  mirrored(store, dir.path(), 5, 1);
  EXPECT_TRUE(store.has("step_00000005/a1_rank_00000.safetensors"));
  EXPECT_TRUE(store.has("step_00000005/a1_rank_00001.json"));
  EXPECT_TRUE(store.has("step_00000005/a1_state.json"));
  EXPECT_TRUE(store.has("step_00000005/a1_hf/config.json"));
  EXPECT_EQ(store.order.back(), "step_00000005/manifest.a1.json");
  EXPECT_EQ(steps_of(store), (std::vector<int64_t>{5}));
}

TEST(Mirror, SendsACheckpointOfMoreRanksThanThereAre) {
  const TempDir dir;
  DirectoryStore store;
  const fs::path path = saved(dir.path(), 5, 1);
  const Manifest manifest = Manifest::read(path);
  MirrorListing listing(store);
  begin_mirror_step(listing, manifest, 2);
  EXPECT_EQ(send_mirror_files(store, path, manifest, 0, 1), manifest.total_bytes());
  end_mirror_step(listing, manifest, 0.0);
  EXPECT_EQ(steps_of(store), (std::vector<int64_t>{5}));
}

TEST(Mirror, WritesNoManifestWhereARankHasNotSentItsFiles) {
  const TempDir dir;
  DirectoryStore store;
  const fs::path path = saved(dir.path(), 5, 1);
  const Manifest manifest = Manifest::read(path);
  send_mirror_files(store, path, manifest, 0, kRanks);
  MirrorListing listing(store);
  EXPECT_HAS(
      message_of<TemporaryError>([&] { end_mirror_step(listing, manifest, 0.0); }),
      "step 5 is not whole in s3://bucket/run after 0 s: a1_rank_00001.safetensors");
  EXPECT_TRUE(list_mirror(store).empty());
}

TEST(Mirror, ADamagedFileIsNotMirrored) {
  const TempDir dir;
  DirectoryStore store;
  const fs::path path = saved(dir.path(), 5, 1);
  const Manifest manifest = Manifest::read(path);
  const fs::path data = path / "a1_rank_00000.safetensors";
  std::string bytes = longhaul::read_text(data);
  bytes.back() = static_cast<char>(bytes.back() ^ 1);
  write_file(data, bytes);
  EXPECT_HAS(message_of<InputError>(
                 [&] { send_mirror_files(store, path, manifest, 0, kRanks); }),
             "the file is damaged, and step 5 is not mirrored");
  EXPECT_FALSE(store.has("step_00000005/a1_rank_00000.safetensors"));
}

TEST(Mirror, TheHighestAttemptWinsWhoseFilesAreAllThere) {
  const TempDir first;
  const TempDir second;
  DirectoryStore store;
  mirrored(store, first.path(), 5, 1);
  mirrored(store, second.path(), 5, 3);
  ASSERT_EQ(list_mirror(store).size(), 1U);
  EXPECT_EQ(list_mirror(store)[0].attempt, 3);
  EXPECT_EQ(MirrorListing(store).highest_attempt(), 3);
  fs::resize_file(store.path("step_00000005/a3_rank_00001.safetensors"), 7);
  std::vector<std::string> skipped;
  const auto found = list_mirror(store, &skipped);
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(found[0].attempt, 1);
  ASSERT_EQ(skipped.size(), 1U);
  EXPECT_HAS(skipped[0], "manifest.a3.json passed over: a3_rank_00001.safetensors has 7");
  // A half upload counts for the number of the next attempt.
  store.put_text("x", "step_00000009/a7_state.json");
  EXPECT_EQ(MirrorListing(store).highest_attempt(), 7);
  EXPECT_EQ(steps_of(store), (std::vector<int64_t>{5}));
}

TEST(Mirror, AStoreThatRefusesIsNoCheckpointThatIsPassedOver) {
  const TempDir dir;
  DirectoryStore store;
  for (const int64_t step : {5, 6}) mirrored(store, dir.path(), step, 1);
  store.denied = "step_00000006/manifest.a1.json";
  EXPECT_HAS(message_of<InputError>([&] { list_mirror(store); }), "no permission");
  write_file(store.path(store.denied), "{");
  store.denied.clear();
  EXPECT_EQ(steps_of(store), (std::vector<int64_t>{5}));
}

TEST(Mirror, AStepThatIsGoneBackOnIsFoundByNoStart) {
  const TempDir dir;
  DirectoryStore store;
  mirrored(store, dir.path(), 5, 1);
  mirrored(store, dir.path(), 9, 1);
  const TempDir other;
  mirrored(store, other.path(), 9, 4);
  // The run goes back to step 5, and saves step 7 as attempt 2: attempt 4 knows better.
  const TempDir again;
  mirrored(store, again.path(), 7, 2);
  EXPECT_EQ(steps_of(store), (std::vector<int64_t>{9, 7, 5}));
  EXPECT_TRUE(store.has("step_00000009/superseded.a1.json"));
  EXPECT_EQ(list_mirror(store)[0].attempt, 4);
  MirrorListing listing(store);
  EXPECT_EQ(supersede_mirror(listing, 5, 4), (std::vector<int64_t>{9, 7}));
  EXPECT_EQ(steps_of(store), (std::vector<int64_t>{5}));
}

TEST(Mirror, WhatAPastHasLeftUnderTheSameNamesIsGoneBeforeNewFilesCome) {
  const TempDir dir;
  DirectoryStore store;
  const fs::path path = mirrored(store, dir.path(), 5, 1);
  const Manifest manifest = Manifest::read(path);
  MirrorListing listing(store);
  begin_mirror_step(listing, manifest, 1);
  EXPECT_EQ(store.removed.front(), "step_00000005/manifest.a1.json");
  EXPECT_TRUE(store.list("step_00000005").empty());
}

TEST(Mirror, IsOfOneRunOnly) {
  DirectoryStore store;
  EXPECT_FALSE(read_mirror_owner(store));
  EXPECT_TRUE(claim_mirror(store, kRun, 1));
  EXPECT_FALSE(claim_mirror(store, kRun, 1));
  EXPECT_EQ(read_mirror_owner(store)->run, kRun);
  EXPECT_HAS(
      message_of<InputError>([&] { claim_mirror(store, std::string(32, 'b'), 1); }),
      "holds the checkpoints of another run (" + kRun);
}

TEST(Mirror, AnOlderAttemptOfTheRunIsToldThatALaterOneWrites) {
  DirectoryStore store;
  claim_mirror(store, kRun, 2);
  claim_mirror(store, kRun, 5);
  EXPECT_EQ(read_mirror_owner(store)->attempt, 5);
  EXPECT_HAS(message_of<InputError>([&] { claim_mirror(store, kRun, 2); }),
             "is written by attempt 5 of this run, and this is attempt 2");
  EXPECT_EQ(read_mirror_owner(store)->attempt, 5);
}

TEST(Mirror, ARunThatBeginsAnewSupersedesItsOwnCheckpointsAndNoOthers) {
  const TempDir dir;
  DirectoryStore store;
  mirrored(store, dir.path(), 5, 1);
  claim_mirror(store, kRun, 1);
  const std::string anew(32, 'b');
  EXPECT_HAS(
      message_of<InputError>([&] { claim_mirror(store, anew, 2, std::string(32, 'c')); }),
      "holds the checkpoints of another run (" + kRun);
  EXPECT_EQ(steps_of(store), (std::vector<int64_t>{5}));
  claim_mirror(store, anew, 2, kRun);
  EXPECT_EQ(read_mirror_owner(store)->run, anew);
  EXPECT_TRUE(steps_of(store).empty());
}

TEST(Mirror, AFetchedCheckpointIsTheOneThatWasSaved) {
  const TempDir dir;
  const TempDir back;
  DirectoryStore store;
  const fs::path path = mirrored(store, dir.path(), 5, 1);
  const fs::path fetched = fetch_checkpoint(store, list_mirror(store)[0], back.path());
  EXPECT_EQ(fetched, back / "step_00000005");
  EXPECT_EQ(longhaul::read_text(fetched / run::kManifestFile),
            longhaul::read_text(path / run::kManifestFile));
  EXPECT_GT(CheckpointReader::open(fetched).verify(), 0U);
  const auto entries = list_checkpoints(back.path());
  ASSERT_EQ(entries.size(), 1U);
  EXPECT_TRUE(entries[0].valid) << entries[0].problem;
  EXPECT_HAS(message_of<InputError>(
                 [&] { fetch_checkpoint(store, list_mirror(store)[0], back.path()); }),
             "is there already");
}

TEST(Mirror, AFetchedFileIsComparedWithItsHash) {
  const TempDir dir;
  const TempDir back;
  DirectoryStore store;
  mirrored(store, dir.path(), 5, 1);
  const std::string name = "step_00000005/a1_rank_00001.safetensors";
  std::string bytes = *store.read_text(name);
  bytes[bytes.size() / 2] = static_cast<char>(bytes[bytes.size() / 2] ^ 1);
  store.put_text(bytes, name);
  const MirrorStep step = list_mirror(store)[0];
  EXPECT_HAS(message_of<InputError>([&] { fetch_checkpoint(store, step, back.path()); }),
             "a1_rank_00001.safetensors: its bytes have hash");
  EXPECT_TRUE(fs::is_empty(back.path()));
}

TEST(Mirror, AHalfFetchedCheckpointIsNone) {
  const TempDir dir;
  const TempDir back;
  DirectoryStore store;
  mirrored(store, dir.path(), 5, 1);
  const MirrorStep step = list_mirror(store)[0];
  store.refused = "step_00000005/a1_rank_00001.json";
  message_of<TemporaryError>([&] { fetch_checkpoint(store, step, back.path()); });
  EXPECT_TRUE(list_checkpoints(back.path()).empty());
  // What a killed start has left does no harm.
  write_file(back / ".fetched_step_00000005/a1_state.json", "half");
  write_file(back / "step_00000005/a1_state.json", "half");
  EXPECT_FALSE(has_committed(back.path()));
  store.refused.clear();
  fetch_checkpoint(store, step, back.path());
  EXPECT_TRUE(find_latest(back.path()).has_value());
}

TEST(Mirror, IsThinnedOutByItsOwnRule) {
  const TempDir dir;
  DirectoryStore store;
  for (int64_t step = 1; step <= 6; ++step) mirrored(store, dir.path(), step, 1);
  EXPECT_TRUE(thin_out(store, 0, 0).empty());
  EXPECT_EQ(thin_out(store, 4, 0), (std::vector<int64_t>{2, 1}));
  EXPECT_EQ(thin_out(store, 2, 3), (std::vector<int64_t>{4}));
  EXPECT_EQ(steps_of(store), (std::vector<int64_t>{6, 5, 3}));
  EXPECT_TRUE(store.list("step_00000004").empty());
  // The manifest goes first.
  const auto first = std::ranges::find_if(store.removed, [](const std::string& name) {
    return name.starts_with(in_step(4, ""));
  });
  ASSERT_NE(first, store.removed.end());
  EXPECT_EQ(*first, "step_00000004/manifest.a1.json");
}

TEST(Mirror, WhatAListingHasChangedItKnows) {
  const TempDir dir;
  DirectoryStore store;
  for (int64_t step = 1; step <= 5; ++step) mirrored(store, dir.path(), step, 1);
  MirrorListing listing(store);
  EXPECT_TRUE(listing.is_whole(2));
  listing.remove(2, "a1_state.json");
  EXPECT_FALSE(listing.is_whole(2));
  EXPECT_EQ(supersede_mirror(listing, 4, 1), (std::vector<int64_t>{5}));
  EXPECT_EQ(thin_out_mirror(listing, 1, 3), (std::vector<int64_t>{2, 1}));
  const MirrorListing now(store);
  EXPECT_EQ(listing.steps(), now.steps());
  for (const int64_t step : now.steps()) {
    EXPECT_EQ(listing.objects(step), now.objects(step)) << step;
  }
}

TEST(Mirror, AStepThatIsNotWholeProtectsTheOlderOnes) {
  const TempDir dir;
  DirectoryStore store;
  for (int64_t step = 1; step <= 3; ++step) mirrored(store, dir.path(), step, 1);
  store.remove("step_00000003/a1_rank_00000.safetensors");
  // A half upload below a whole step is deleted, one above stays.
  store.put_text("half", in_step(0, "a1_state.json"));
  store.put_text("half", in_step(9, "a1_state.json"));
  EXPECT_EQ(thin_out(store, 2, 0), (std::vector<int64_t>{0}));
  EXPECT_EQ(steps_of(store), (std::vector<int64_t>{2, 1}));
  EXPECT_TRUE(store.has("step_00000009/a1_state.json"));
}

/// Several ranks share one store; a thread's stop() must not stop the others.
class SharedStore : public MirrorStore {
 public:
  explicit SharedStore(DirectoryStore& store) : store_(store) {}
  std::string place() const override { return store_.place(); }
  std::vector<Entry> list(const std::string& below) override {
    return store_.list(below);
  }
  std::string put(const fs::path& from, const std::string& name) override {
    return store_.put(from, name);
  }
  std::string fetch(const std::string& name, const fs::path& to) override {
    return store_.fetch(name, to);
  }
  void put_text(const std::string& text, const std::string& name) override {
    store_.put_text(text, name);
  }
  std::optional<std::string> read_text(const std::string& name) override {
    return store_.read_text(name);
  }
  void remove(const std::string& name) override { store_.remove(name); }
  void remove_all(const std::string& below) override { store_.remove_all(below); }
  void stop() override {}
  int64_t retries() const override { return 0; }

 private:
  DirectoryStore& store_;
};

/// The threads of all ranks of a run.
struct Mirroring {
  Mirroring(DirectoryStore& store, const fs::path& dir, int64_t keep = 0) {
    for (int rank = 0; rank < kRanks; ++rank) {
      MirrorOptions options;
      options.checkpoints = dir;
      options.run = kRun;
      options.rank = rank;
      options.ranks = kRanks;
      options.keep = keep;
      ranks.push_back(
          std::make_unique<MirrorThread>(options, std::make_unique<SharedStore>(store)));
    }
  }
  void committed(int64_t step, bool if_absent = false) {
    for (const auto& rank : ranks) rank->committed(step, if_absent);
  }
  void wait() {
    for (int i = 0; i < 4000 && (ranks[0]->busy() || ranks[1]->busy()); ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    EXPECT_FALSE(ranks[0]->busy());
    EXPECT_FALSE(ranks[1]->busy());
  }

  std::vector<std::unique_ptr<MirrorThread>> ranks;
};

using Kind = MirrorReport::Kind;

TEST(MirrorThread, EachRankSendsItsFilesOfEveryCommittedStep) {
  const TempDir dir;
  DirectoryStore store;
  saved(dir.path(), 5, 1);
  Mirroring run(store, dir.path());
  run.committed(5);
  run.wait();
  const auto reports = run.ranks[0]->take_reports();
  ASSERT_EQ(reports.size(), 1U);
  EXPECT_EQ(reports[0].kind, Kind::Done) << reports[0].message;
  EXPECT_EQ(reports[0].bytes, list_mirror(store).at(0).manifest.total_bytes());
  EXPECT_EQ(run.ranks[0]->newest(), 5);
  EXPECT_TRUE(run.ranks[1]->take_reports().empty());
  // A start does not send again what the mirror has.
  const size_t sent = store.order.size();
  Mirroring next(store, dir.path());
  next.committed(5, /*if_absent=*/true);
  next.wait();
  EXPECT_EQ(store.order.size(), sent);
  EXPECT_EQ(next.ranks[0]->newest(), 5);
}

TEST(MirrorThread, ListsTheWholeMirrorOnceAndEachStepAtItsEnd) {
  const TempDir dir;
  DirectoryStore store;
  mirrored(store, dir.path(), 4, 1);
  for (const int64_t step : {5, 6, 7}) saved(dir.path(), step, 1);
  store.listed.clear();
  Mirroring run(store, dir.path(), /*keep=*/2);
  for (const int64_t step : {5, 6, 7}) {
    run.committed(step);
    run.wait();
    EXPECT_EQ(run.ranks[0]->newest(), step);
  }
  EXPECT_EQ(store.listed, (std::vector<std::string>{"", "step_00000005", "step_00000006",
                                                    "step_00000007"}));
  // Of manifests only the one that was there before has been read.
  EXPECT_EQ(std::ranges::count_if(
                store.texts_read,
                [](const std::string& name) { return name.starts_with("step_"); }),
            1);
  EXPECT_EQ(steps_of(store), (std::vector<int64_t>{7, 6}));
}

TEST(MirrorThread, OnlyTheNewestOfSeveralStepsWaits) {
  const TempDir dir;
  DirectoryStore store;
  for (const int64_t step : {5, 6, 7}) saved(dir.path(), step, 1);
  store.held = true;
  Mirroring run(store, dir.path());
  run.committed(5);
  // The first step is under way when the others come.
  while (!fs::exists(dir / run::kMirrorTurnFile)) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  run.committed(6);
  run.committed(7);
  EXPECT_TRUE(run.ranks[0]->holds(5));
  EXPECT_FALSE(run.ranks[0]->holds(6));
  EXPECT_TRUE(run.ranks[0]->holds(7));
  store.held = false;
  run.wait();
  EXPECT_EQ(steps_of(store), (std::vector<int64_t>{7, 5}));
  EXPECT_FALSE(run.ranks[0]->holds(7));
  std::vector<std::pair<Kind, int64_t>> told;
  for (const auto& report : run.ranks[0]->take_reports()) {
    told.emplace_back(report.kind, report.step);
  }
  EXPECT_EQ(told, (std::vector<std::pair<Kind, int64_t>>{
                      {Kind::Behind, 6}, {Kind::Done, 5}, {Kind::Done, 7}}));
}

TEST(MirrorThread, AStepIsNotWholeBeforeEveryRankSaysThatItsFilesAre) {
  const TempDir dir;
  DirectoryStore store;
  const fs::path path = saved(dir.path(), 5, 1);
  Mirroring run(store, dir.path());
  run.ranks[0]->committed(5);
  while (!fs::exists(dir / run::kMirrorTurnFile)) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  // The store lists rank 1's files, which the rank has not compared yet.
  send_mirror_files(store, path, Manifest::read(path), 1, kRanks);
  std::this_thread::sleep_for(std::chrono::milliseconds(800));
  EXPECT_TRUE(steps_of(store).empty());
  run.ranks[1]->committed(5);
  run.wait();
  EXPECT_EQ(steps_of(store), (std::vector<int64_t>{5}));
}

TEST(MirrorThread, TellsWhatAnyRankCouldNotSendAndTriesTheNextStep) {
  const TempDir dir;
  DirectoryStore store;
  for (const int64_t step : {5, 6}) saved(dir.path(), step, 1);
  store.refused = "step_00000005/a1_rank_00001.json";
  Mirroring run(store, dir.path());
  run.committed(5);
  run.wait();
  const auto reports = run.ranks[0]->take_reports();
  ASSERT_EQ(reports.size(), 1U);
  EXPECT_EQ(reports[0].kind, Kind::Failed);
  EXPECT_HAS(reports[0].message, "rank 1: [objects] the store is away");
  EXPECT_TRUE(run.ranks[0]->holds(5)) << "it is the newest, and the mirror lacks it";
  run.committed(6);
  run.wait();
  EXPECT_EQ(steps_of(store), (std::vector<int64_t>{6}));
}

TEST(MirrorThread, WhatIsLaterThanTheStepThatTheRunGoesBackToIsTakenAway) {
  const TempDir dir;
  DirectoryStore store;
  for (const int64_t step : {5, 9}) mirrored(store, dir.path(), step, 1);
  Mirroring run(store, dir.path());
  run.ranks[0]->went_back(5);
  run.wait();
  EXPECT_EQ(steps_of(store), (std::vector<int64_t>{5}));
}

TEST(MirrorThread, WritesNothingIntoTheMirrorOfAnotherRun) {
  const TempDir dir;
  DirectoryStore store;
  claim_mirror(store, std::string(32, 'b'), 1);
  saved(dir.path(), 5, 1);
  Mirroring run(store, dir.path());
  run.committed(5);
  run.wait();
  EXPECT_EQ(store.order.size(), 1U);
  EXPECT_HAS(run.ranks[0]->take_reports().at(0).message,
             "holds the checkpoints of another run");
}

TEST(MirrorThread, WritesNothingMoreWhereAnotherRunHasBegunAnew) {
  const TempDir dir;
  DirectoryStore store;
  for (const int64_t step : {5, 6}) saved(dir.path(), step, 1);
  Mirroring run(store, dir.path());
  run.committed(5);
  run.wait();
  EXPECT_EQ(run.ranks[0]->take_reports().at(0).kind, Kind::Done);
  store.remove(run::kCheckpointsOwnerFile);
  claim_mirror(store, std::string(32, 'b'), 1);
  const size_t sent = store.order.size();
  run.committed(6);
  run.wait();
  EXPECT_EQ(store.order.size(), sent);
  EXPECT_HAS(run.ranks[0]->take_reports().at(0).message,
             "holds the checkpoints of another run");
}

}  // namespace
}  // namespace longhaul::checkpoint
