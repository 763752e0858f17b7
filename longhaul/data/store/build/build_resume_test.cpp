#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <random>
#include <thread>

#include "longhaul/system/owner_lock.h"
#include "tests/support/store_build.h"

namespace longhaul::data {
namespace {

/// Starts a build in a child process, which ends with 0 or the exit code of the error.
pid_t start_build(const tokenizer::Tokenizer& tokenizer, const BuildOptions& options) {
  const pid_t child = ::fork();
  if (child != 0) return child;
  int code = 0;
  try {
    build_store(&tokenizer, options);
  } catch (const Error& error) {
    code = error.exit_code();
    ::dprintf(2, "process %d: %s\n", options.process, error.what());
  }
  ::_exit(code);
}

int wait_for(pid_t child) {
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

class ResumeTest : public BuildTest {
 protected:
  ResumeTest() {
    wanted = options(many_documents(8000) + many_documents(1000));
    wanted.part_bytes = 60'000;
    wanted.holdout = 0.05;
    wanted.drop_duplicates = true;
    wanted.out = dir / "whole";
    build_store(&tokenizer, wanted);
    train = contents(dir / "whole");
    held_out = contents(dir / "whole-val");
    wanted.out = dir / "store";
  }
  void expect_same_bytes() const {
    EXPECT_TRUE(contents(dir / "store") == train);
    EXPECT_TRUE(contents(dir / "store-val") == held_out);
    EXPECT_FALSE(fs::exists(building_path(wanted.out)));
  }

  BuildOptions wanted;
  std::map<std::string, std::string> train;
  std::map<std::string, std::string> held_out;
};

/// Returns a stop function that kills its own process a moment after the build has called
/// the function `n` times. The build calls the function as it makes progress, so that the
/// speed of the machine does not matter.
std::function<bool()> dies_after(int n, std::chrono::microseconds moment) {
  const auto asked = std::make_shared<std::atomic<int>>(0);
  return [=] {
    if (++*asked == n) {
      std::thread([=] {
        std::this_thread::sleep_for(moment);
        ::raise(SIGKILL);
      }).detach();
      if (moment.count() == 0) ::pause();
    }
    return false;
  };
}

TEST_F(ResumeTest, KilledAtAnyMomentItGoesOnToTheSameBytes) {
  const uint64_t seed = std::random_device{}();
  std::mt19937_64 random(seed);
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::atomic<int> asked = 0;
  wanted.stop = [&] { return ++asked, false; };
  wanted.out = dir / "counted";
  build_store(&tokenizer, wanted);
  wanted.out = dir / "store";
  ASSERT_GT(asked, 12);
  // Each start makes some progress, and the last killed start does not reach the end.
  for (int kills = 0; kills < 6; ++kills) {
    const int n = 1 + static_cast<int>(random() % static_cast<uint64_t>(asked / 12));
    wanted.stop = dies_after(n, std::chrono::microseconds(kills * 300));
    const int ended = wait_for(start_build(tokenizer, wanted));
    if (kills == 0) {
      EXPECT_EQ(ended, -SIGKILL);
    }
    EXPECT_TRUE(ended == -SIGKILL || ended == 0) << ended;
  }
  wanted.stop = nullptr;
  EXPECT_EQ(wait_for(start_build(tokenizer, wanted)), 0);
  expect_same_bytes();
}

TEST_F(ResumeTest, AKillBetweenTheRenamesOfTheEndLosesNoStore) {
  // The state after both stores, or only the first store, have been moved to their
  // places.
  for (const bool both : {true, false}) {
    build_store(&tokenizer, wanted);
    const fs::path building = building_path(wanted.out);
    fs::create_directories(building);
    const auto fingerprint = [](const fs::path& path) {
      return read_store_info(path).fingerprint;
    };
    dir.write("store.building/commit.json",
              Json{{"train", fingerprint(dir / "store")},
                   {"validation", fingerprint(dir / "store-val")}}
                  .dump());
    if (!both) fs::rename(dir / "store", building / "train");
    build_store(&tokenizer, wanted);
    expect_same_bytes();
  }
}

TEST_F(ResumeTest, ThreeProcessesMakeWhatOneMakes) {
  wanted.processes = 3;
  std::vector<pid_t> children;
  for (int process = 0; process < 3; ++process) {
    wanted.process = process;
    children.push_back(start_build(tokenizer, wanted));
  }
  for (const pid_t child : children) EXPECT_EQ(wait_for(child), 0);
  expect_same_bytes();
}

TEST_F(ResumeTest, ADeadPeerIsAClearErrorAndAnotherNumberOfProcessesGoesOn) {
  wanted.processes = 3;
  wanted.start_seconds = 0.5;
  std::vector<pid_t> children;
  for (const int process : {0, 2}) {
    wanted.process = process;
    children.push_back(start_build(tokenizer, wanted));
  }
  EXPECT_EQ(wait_for(children[0]), 75);
  wait_for(children[1]);
  wanted.process = 0;
  try {
    build_store(&tokenizer, wanted);
    ADD_FAILURE() << "process 1 never came";
  } catch (const TemporaryError& error) {
    EXPECT_HAS(error.what(), "process 1 of 3 has not started");
    EXPECT_HAS(error.what(), "start the same command again");
  }
  wanted.processes = 1;
  build_store(&tokenizer, wanted);
  expect_same_bytes();
}

TEST_F(ResumeTest, AStoppedBuildSaysSoAndGoesOn) {
  std::atomic<int> asked = 0;
  wanted.drop_duplicates = false;
  wanted.out = dir / "stopped";
  wanted.stop = [&] { return ++asked > 8; };
  wanted.threads = 1;
  EXPECT_THROW(build_store(&tokenizer, wanted), TemporaryError);
  wanted.stop = nullptr;
  std::vector<std::string> notes;
  wanted.note = [&](const std::string& line) { notes.push_back(line); };
  build_store(&tokenizer, wanted);
  ASSERT_EQ(notes.size(), 1U);
  EXPECT_HAS(notes[0], "parts were done before");
}

TEST_F(ResumeTest, WhatChangedSinceIsNamedAndNothingIsMixed) {
  std::atomic<int> asked = 0;
  wanted.drop_duplicates = false;
  wanted.threads = 1;
  wanted.stop = [&] { return ++asked > 8; };
  EXPECT_THROW(build_store(&tokenizer, wanted), TemporaryError);
  wanted.stop = nullptr;
  const auto refused = [&](const BuildOptions& changed) {
    return input_error([&] { build_store(&tokenizer, changed); });
  };
  BuildOptions other = wanted;
  other.special = SpecialPolicy::None;
  EXPECT_HAS(refused(other), "special tokens: 'tokenizer+eos");
  other = wanted;
  other.holdout = 0.1;
  EXPECT_HAS(refused(other), "holdout: '0.05', now '0.1'");
  EXPECT_HAS(refused(other), "--restart");
  other = wanted;
  other.inputs.arguments.push_back(dir.write("more.jsonl", line("more")).string());
  EXPECT_HAS(refused(other), "more.jsonl was not among the inputs");
  const std::string corpus = read_text(dir / "corpus.jsonl");
  dir.write("corpus.jsonl", corpus + line("x"));
  EXPECT_HAS(refused(wanted), "corpus.jsonl had " + std::to_string(corpus.size()));
  dir.write("corpus.jsonl", corpus);
  EXPECT_HAS(refused(wanted), "corpus.jsonl was written to since then");
  wanted.restart = true;
  wanted.drop_duplicates = true;
  const BuildReport report = build_store(&tokenizer, wanted);
  EXPECT_EQ(report.train.dropped.at("duplicate"), 1000);
}

TEST_F(ResumeTest, ASecondBuilderAtTheSamePlaceIsRefused) {
  system::OwnerLockOptions held;
  const system::OwnerLock lock =
      system::OwnerLock::acquire(building_path(wanted.out) / "process_00000.lock", held);
  EXPECT_HAS(input_error([&] { build_store(&tokenizer, wanted); }),
             "another process builds this store");
  EXPECT_TRUE(fs::exists(building_path(wanted.out)));
}

}  // namespace
}  // namespace longhaul::data
