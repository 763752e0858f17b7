#include "longhaul/checkpoint/mirror/mirror_thread.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <thread>

#include "longhaul/base/error.h"
#include "longhaul/checkpoint/mirror/mirror_writer.h"
#include "longhaul/run/files.h"
#include "tests/support/mirror_directory.h"

namespace longhaul::checkpoint {
namespace {

using testing::DirectoryStore;
using testing::kMirrorRanks;
using testing::kMirrorRun;
using testing::list_mirror;
using testing::mirrored;
using testing::saved;
using testing::steps_of;
using testing::TempDir;
using testing::write_file;

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
  Mirroring(DirectoryStore& store, const fs::path& dir, int64_t keep = 0,
            double first_wait = 30.0) {
    const auto marker =
        run::mark_checkpoints(dir, {kMirrorRun, 1, {run::new_identity()}});
    for (int rank = 0; rank < kMirrorRanks; ++rank) {
      MirrorOptions options;
      options.checkpoints = dir;
      options.claim.marker = marker;
      options.rank = rank;
      options.ranks = kMirrorRanks;
      options.keep = keep;
      options.first_wait = first_wait;
      options.longest_wait = 3.0 * first_wait;
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

void claim_for_another(DirectoryStore& store) {
  MirrorClaim another{{std::string(32, 'b'), 1, {}}, {}, {}};
  claim_mirror(store, another);
}

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
  // A start does not send again the files that the mirror has.
  const size_t sent = store.order.size();
  Mirroring next(store, dir.path());
  next.committed(5, /*if_absent=*/true);
  next.wait();
  EXPECT_EQ(store.order.size(), sent + 1) << "its name, and nothing else";
  EXPECT_EQ(next.ranks[0]->newest(), 5);
}

TEST(MirrorThread, AStartThatGoesOnFromAStepOfTheMirrorTakesLaterOnesAway) {
  const TempDir dir;
  DirectoryStore store;
  // An earlier start went back to step 5, and ended before it could take step 9 from the
  // mirror.
  for (const int64_t step : {5, 9}) mirrored(store, dir.path(), step, 1);
  Mirroring run(store, dir.path());
  run.committed(5, /*if_absent=*/true);
  run.wait();
  EXPECT_EQ(steps_of(store), (std::vector<int64_t>{5}));
}

TEST(MirrorThread, ListsTheWholeMirrorOnceASaveAndTheStepAtItsEnd) {
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
  // Before the first step the mirror has no writer's name yet, so it is listed once more.
  EXPECT_EQ(store.listed,
            (std::vector<std::string>{"", "", "step_00000005", "", "step_00000006", "",
                                      "step_00000007"}));
  EXPECT_EQ(steps_of(store), (std::vector<int64_t>{7, 6}));
}

TEST(MirrorThread, OnlyTheNewestOfSeveralStepsWaits) {
  const TempDir dir;
  DirectoryStore store;
  for (const int64_t step : {5, 6, 7}) saved(dir.path(), step, 1);
  store.held = true;
  Mirroring run(store, dir.path());
  run.committed(5);
  // The first step is being sent when the other steps are committed.
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
  // The store lists rank 1's files, but rank 1 has not said yet that their hashes are
  // right.
  send_mirror_files(store, path, Manifest::read(path), 1, kMirrorRanks);
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
  EXPECT_EQ(reports[0].again, 30.0);
  EXPECT_TRUE(run.ranks[0]->holds(5)) << "it is the newest, and the mirror lacks it";
  run.committed(6);
  run.wait();
  EXPECT_EQ(steps_of(store), (std::vector<int64_t>{6}));
}

TEST(MirrorThread, TriesAStepAgainThatHasFailedForAPassingReason) {
  const TempDir dir;
  DirectoryStore store;
  saved(dir.path(), 5, 1);
  store.refused = "step_00000005/a1_rank_00001.json";
  store.refusals = 3;
  Mirroring run(store, dir.path(), /*keep=*/0, /*first_wait=*/0.02);
  run.committed(5);
  while (run.ranks[0]->newest() != 5) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  run.wait();
  EXPECT_EQ(steps_of(store), (std::vector<int64_t>{5}));
  std::vector<std::pair<Kind, double>> told;
  for (const auto& report : run.ranks[0]->take_reports()) {
    told.emplace_back(report.kind, report.again);
  }
  EXPECT_EQ(told, (std::vector<std::pair<Kind, double>>{{Kind::Failed, 0.02},
                                                        {Kind::Failed, 0.04},
                                                        {Kind::Failed, 0.02 * 3.0},
                                                        {Kind::Done, 0.0}}));
}

TEST(MirrorThread, DoesNotTryAgainWhatStaysWrong) {
  const TempDir dir;
  DirectoryStore store;
  const fs::path data = saved(dir.path(), 5, 1) / "a1_rank_00001.safetensors";
  std::string bytes = longhaul::read_text(data);
  bytes.back() = static_cast<char>(bytes.back() ^ 1);
  write_file(data, bytes);
  Mirroring run(store, dir.path(), /*keep=*/0, /*first_wait=*/0.001);
  run.committed(5);
  run.wait();
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  const auto reports = run.ranks[0]->take_reports();
  ASSERT_EQ(reports.size(), 1U);
  EXPECT_EQ(reports[0].again, 0.0);
  EXPECT_HAS(reports[0].message, "rank 1: [mirror] ");
}

TEST(MirrorThread, ANewerStepAndGoingBackAndTheEndOfTheRunEndTheWaitForTheNextTry) {
  enum class By { NewerStep, GoingBack, End };
  for (const By by : {By::NewerStep, By::GoingBack, By::End}) {
    const TempDir dir;
    DirectoryStore store;
    for (const int64_t step : {5, 6}) saved(dir.path(), step, 1);
    store.refused = "step_00000005/a1_rank_00000.json";
    Mirroring run(store, dir.path(), /*keep=*/0, /*first_wait=*/0.1);
    run.committed(5);
    while (run.ranks[0]->take_reports().empty()) {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    if (by == By::NewerStep) run.committed(6);
    if (by == By::GoingBack) run.ranks[0]->went_back(4);
    if (by == By::End) run.ranks[0]->try_no_more();
    run.wait();
    store.refusals = 0;
    std::this_thread::sleep_for(std::chrono::milliseconds(1000));
    const std::vector<int64_t> newer = {6};
    EXPECT_EQ(steps_of(store), by == By::NewerStep ? newer : std::vector<int64_t>{});
  }
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
  claim_for_another(store);
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
  claim_for_another(store);
  const size_t sent = store.order.size();
  run.committed(6);
  run.wait();
  EXPECT_EQ(store.order.size(), sent);
  EXPECT_HAS(run.ranks[0]->take_reports().at(0).message,
             "holds the checkpoints of another run");
}

}  // namespace
}  // namespace longhaul::checkpoint
