#include "longhaul/cluster/watch/storage_watch.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <thread>

#include "tests/support/scratch_directory.h"

namespace longhaul::cluster {
namespace {

bool answers_within(const StorageQuestion& question, double seconds) {
  for (const system::Stopwatch watch; watch.seconds() < seconds;) {
    if (question()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return false;
}

TEST(StorageQuestions, AreAnsweredByADirectoryAndLeaveNothingThere) {
  const TestDirectory dir;
  EXPECT_TRUE(answers_within(ask_storage(dir.path()), 10.0));
  EXPECT_TRUE(fs::is_empty(dir.path()));
  EXPECT_TRUE(answers_within(ask_storage(dir / "absent"), 10.0))
      << "an error is an answer";
}

/// The probe is a pipe that nobody reads: opening it for writing waits, as on frozen
/// storage.
TEST(StorageQuestions, AreNotAnsweredByAChildThatWaitsAndHoldNobodyUp) {
  const TestDirectory dir;
  const fs::path probe = dir / (".storage_probe_" + std::to_string(::getpid()));
  ASSERT_EQ(::mkfifo(probe.c_str(), 0600), 0);
  const system::Stopwatch watch;
  {
    const StorageQuestion question = ask_storage(dir.path());
    EXPECT_FALSE(answers_within(question, 0.5));
  }
  EXPECT_LT(watch.seconds(), 5.0);
}

class StorageOfARun : public testing::Test {
 protected:
  StorageWatch watch_{{"/a", "/b"},
                      {.answer_seconds = 0.05, .wait_seconds = 0.3},
                      [this](const fs::path& dir) {
                        ++asked_;
                        return [this, dir] { return dir == "/a" || answers_; };
                      }};
  void sleep(double seconds) {
    std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
  }
  bool answers_ = false;
  int asked_ = 0;
};

TEST_F(StorageOfARun, IsAskedOnlyInAHangAndOnceAtATime) {
  EXPECT_EQ(watch_.look(false), StorageState::Answers);
  EXPECT_EQ(asked_, 0);
  answers_ = true;
  EXPECT_EQ(watch_.look(true), StorageState::Asked);
  EXPECT_EQ(watch_.look(true), StorageState::Answers);
  EXPECT_EQ(asked_, 2);
}

TEST_F(StorageOfARun, IsSilentAfterAWhileNamedAndBackOnce) {
  EXPECT_EQ(watch_.look(true), StorageState::Asked);
  EXPECT_EQ(watch_.look(true), StorageState::Asked);
  sleep(0.06);
  EXPECT_EQ(watch_.look(true), StorageState::Silent);
  EXPECT_EQ(watch_.names(), "/b");
  EXPECT_GT(watch_.back_seconds(), 1e9);
  answers_ = true;
  EXPECT_EQ(watch_.look(false), StorageState::Back);
  EXPECT_LT(watch_.back_seconds(), 1.0);
  EXPECT_EQ(watch_.look(false), StorageState::Answers);
  EXPECT_EQ(asked_, 2);
}

TEST_F(StorageOfARun, IsGivenUpAfterTheStatedTimeAndAskedAnewByANewStart) {
  watch_.look(true);
  sleep(0.35);
  EXPECT_EQ(watch_.look(true), StorageState::GivenUp);
  watch_.restart();
  EXPECT_EQ(watch_.look(true), StorageState::Asked);
}

}  // namespace
}  // namespace longhaul::cluster
