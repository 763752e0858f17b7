#include "longhaul/checkpoint/mirror/mirror_exports.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include "longhaul/checkpoint/mirror/mirror_thread.h"
#include "tests/support/mirror_directory.h"

namespace longhaul::checkpoint {
namespace {

using testing::DirectoryStore;
using testing::kMirrorRun;
using testing::TempDir;
using testing::write_file;

/// A directory of a run. Each call of copied() lets MirrorExports look at it once, and
/// returns the names that were copied.
struct Exporting {
  std::vector<std::string> copied() {
    store.order.clear();
    MirrorExports exports(store, run.path(), run / "checkpoints",
                          [&](const std::string& line) { lines.push_back(line); });
    look(exports);
    std::erase(store.order, "run/copied.json");
    return store.order;
  }
  static void look(MirrorExports& exports) {
    exports.look();
    while (exports.busy()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  void write_export(const std::string& dir, const std::string& text) const {
    write_file(run / dir / "config.json", "{}");
    write_file(run / dir / "model-00001-of-00001.safetensors", text);
    write_file(run / dir / "model.safetensors.index.json", "{}");
    write_file(run / dir / "tokenizer.json", "{}");
  }

  TempDir run;
  DirectoryStore store;
  std::vector<std::string> lines;
};

TEST(MirrorExports, CopiesReportsAndFinishedExportsTheConfigLast) {
  Exporting all;
  all.write_export("exports/final", "weights");
  all.write_export("half.tmp.17", "weights");
  all.write_export("checkpoints/hf", "weights");
  all.write_export("data/model", "weights");
  write_file(all.run / "small/config.json", "{}");
  write_file(all.run / "report.html", "page");
  write_file(all.run / "other.html", "page");
  auto names = all.copied();
  const auto report = std::ranges::find(names, "run/report.html");
  ASSERT_NE(report, names.end());
  names.erase(report);
  EXPECT_EQ(names, (std::vector<std::string>{
                       "run/exports/final/model-00001-of-00001.safetensors",
                       "run/exports/final/tokenizer.json",
                       "run/exports/final/model.safetensors.index.json",
                       "run/exports/final/config.json"}));
}

TEST(MirrorExports, FollowsLinksToOtherDirectories) {
  Exporting all;
  const TempDir other;
  fs::create_directories(other / "exports");
  fs::create_directories(other / "shards");
  fs::create_directory_symlink(other / "exports", all.run / "exports");
  all.write_export("exports/final", "weights");
  fs::create_directory_symlink(other / "shards", all.run / "exports/final/shards");
  write_file(other / "shards/model-00002-of-00002.safetensors", "more");
  ASSERT_TRUE(fs::exists(other / "exports/final/config.json"));
  EXPECT_EQ(all.copied(), (std::vector<std::string>{
                              "run/exports/final/model-00001-of-00001.safetensors",
                              "run/exports/final/shards/model-00002-of-00002.safetensors",
                              "run/exports/final/tokenizer.json",
                              "run/exports/final/model.safetensors.index.json",
                              "run/exports/final/config.json"}));
  EXPECT_EQ(all.lines.size(), 1U);
}

TEST(MirrorExports, LinksThatLeadBackAddNothing) {
  Exporting all;
  all.write_export("exports/final", "weights");
  all.write_export("checkpoints/hf", "weights");
  fs::create_directory_symlink(all.run.path(), all.run / "here");
  fs::create_directory_symlink("exports", all.run / "same");
  fs::create_directory_symlink("checkpoints", all.run / "saves");
  fs::create_directory_symlink("itself", all.run / "itself");
  EXPECT_EQ(all.copied().size(), 4U);
  EXPECT_TRUE(all.store.has("run/exports/final/config.json"));
}

TEST(MirrorExports, AnExportWithALinkToNothingOrToItselfIsNotCopied) {
  Exporting all;
  all.write_export("bad", "weights");
  all.write_export("good", "weights");
  const fs::path shard = all.run / "bad/model-00001-of-00001.safetensors";
  fs::remove(shard);
  for (const char* target : {"/nowhere/model.safetensors", "."}) {
    fs::create_symlink(target, shard);
    all.copied();
    EXPECT_TRUE(all.store.has("run/good/config.json"));
    EXPECT_FALSE(all.store.has("run/bad/config.json"));
    EXPECT_HAS(all.lines.back(), "were not all copied to the mirror");
    EXPECT_HAS(all.lines.back(), shard.string());
    fs::remove(shard);
  }
  write_file(shard, "weights");
  EXPECT_EQ(all.copied().back(), "run/bad/config.json");
}

TEST(MirrorExports, CopiesAFileOnceWhateverStartLooks) {
  Exporting all;
  all.write_export("hf", "weights");
  EXPECT_EQ(all.copied().size(), 4U);
  EXPECT_TRUE(all.copied().empty());
  all.write_export("more", "weights");
  EXPECT_EQ(all.copied().size(), 4U);
  // If somebody has damaged the list of copied files, all files are copied again.
  write_file(all.store.path("run/copied.json"), "{");
  EXPECT_EQ(all.copied().size(), 8U);
}

TEST(MirrorExports, ReplacesAnExportOfTheSameSizesAndRemovesWhatIsNotInIt) {
  Exporting all;
  all.write_export("hf", "weights");
  write_file(all.run / "hf/extra.json", "{}");
  all.copied();
  fs::remove_all(all.run / "hf");
  // The pause makes sure that the files which are written next have another time of
  // change.
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  all.write_export("hf", "WEIGHTS");
  all.store.removed.clear();
  EXPECT_EQ(all.copied().back(), "run/hf/config.json");
  EXPECT_EQ(all.store.removed,
            (std::vector<std::string>{"run/hf/config.json", "run/hf/extra.json"}));
  EXPECT_EQ(all.store.read_text("run/hf/model-00001-of-00001.safetensors"), "WEIGHTS");
}

TEST(MirrorExports, WhatWasCutOffIsNoExportAndGoesOnAtTheNextLook) {
  Exporting all;
  all.write_export("hf", "weights");
  all.store.refused = "run/hf/model.safetensors.index.json";
  all.copied();
  EXPECT_FALSE(all.store.has("run/hf/config.json"));
  ASSERT_EQ(all.lines.size(), 1U);
  EXPECT_HAS(all.lines[0], "were not all copied to the mirror");
  all.store.refused.clear();
  EXPECT_EQ(all.copied(), (std::vector<std::string>{"run/hf/model.safetensors.index.json",
                                                    "run/hf/config.json"}));
}

TEST(MirrorExports, NothingIsReplacedBeforeTheOldConfigIsAway) {
  Exporting all;
  all.write_export("hf", "weights");
  all.copied();
  // The pause makes sure that the files which are written next have another time of
  // change.
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  all.write_export("hf", "WEIGHTS");
  all.store.lost_removals = 1;
  EXPECT_TRUE(all.copied().empty());
  EXPECT_EQ(all.store.read_text("run/hf/model-00001-of-00001.safetensors"), "weights");
  all.store.removed.clear();
  EXPECT_EQ(all.copied().back(), "run/hf/config.json");
  EXPECT_EQ(all.store.removed.front(), "run/hf/config.json");
  EXPECT_EQ(all.store.read_text("run/hf/model-00001-of-00001.safetensors"), "WEIGHTS");
}

TEST(MirrorExports, OneThatCannotBeCopiedKeepsNoOtherFromIt) {
  Exporting all;
  all.write_export("first", "weights");
  all.write_export("second", "weights");
  all.store.refused = "run/first/tokenizer.json";
  all.copied();
  EXPECT_FALSE(all.store.has("run/first/config.json"));
  EXPECT_TRUE(all.store.has("run/second/config.json"));
  all.store.refused = "run/second/tokenizer.json";
  all.copied();
  EXPECT_TRUE(all.store.has("run/first/config.json"));
}

TEST(MirrorExports, NeitherACheckpointNorTheRunsFilesWaitForThem) {
  Exporting all;
  all.write_export("hf", "weights");
  write_file(all.run / "results.json", "{}");
  auto owned = std::make_unique<DirectoryStore>();
  DirectoryStore& store = *owned;
  store.held_below = "run/hf";
  MirrorOptions options;
  options.checkpoints = all.run / "checkpoints";
  fs::create_directory(options.checkpoints);
  options.claim.marker = {kMirrorRun, 1, {}};
  options.run_dir = all.run.path();
  options.run_files = {"results.json"};
  MirrorThread thread(options, std::move(owned));
  // This call makes the start the writer of the mirror.
  thread.went_back(0);
  thread.send_run_files();
  while (thread.busy()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  EXPECT_TRUE(store.has("run/results.json"));
  EXPECT_TRUE(thread.copies_exports());
  thread.stop();
  EXPECT_FALSE(thread.copies_exports());
}

}  // namespace
}  // namespace longhaul::checkpoint
