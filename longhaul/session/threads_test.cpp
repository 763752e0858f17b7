#include "longhaul/session/threads.h"

#include <gtest/gtest.h>

#include "longhaul/base/error.h"

namespace longhaul::session {
namespace {

TEST(Threads, AreTheShareOfTheCpusUnlessToldOtherwise) {
  const ThreadChoice choice = choose_threads(0, nullptr, 4);
  EXPECT_EQ(choice.threads, 4);
  EXPECT_EQ(choice.line,
            "4 threads per rank, from its share of the CPUs of the job on this machine");
}

TEST(Threads, FollowOmpNumThreads) {
  EXPECT_EQ(choose_threads(0, "3", 4).threads, 3);
  EXPECT_EQ(choose_threads(0, "3", 4).line, "3 threads per rank, from OMP_NUM_THREADS");
  EXPECT_EQ(choose_threads(0, "2,8", 4).threads, 2);
  for (const char* nonsense : {"", "0", "-2", "many", "2x"}) {
    EXPECT_EQ(choose_threads(0, nonsense, 4).threads, 4) << nonsense;
  }
}

TEST(Threads, OfTheVariableHaveTheBoundOfTheSetting) {
  EXPECT_EQ(choose_threads(0, "4096", 4).threads, 4096);
  for (const char* many : {"4097", "999999", "99999999999999999999999", "5000,2"}) {
    EXPECT_THROW(choose_threads(0, many, 4), ConfigError) << many;
    EXPECT_EQ(choose_threads(2, many, 4).threads, 2) << many;
  }
  try {
    choose_threads(0, "999999", 4);
  } catch (const ConfigError& error) {
    EXPECT_STREQ(error.what(),
                 "[config] OMP_NUM_THREADS=999999: a rank has at most 4096 threads; set "
                 "run.threads, or correct the variable");
  }
}

TEST(Threads, OfTheConfigurationSayWhatTheyOverrideAndExceed) {
  EXPECT_EQ(choose_threads(1, "1", 1).line, "1 thread per rank, from run.threads");
  const ThreadChoice choice = choose_threads(8, "2", 4);
  EXPECT_EQ(choice.threads, 8);
  EXPECT_EQ(choice.line,
            "8 threads per rank, from run.threads, over OMP_NUM_THREADS=2; its share of "
            "the job's CPUs here is 4");
}

TEST(Threads, WaitAsTheEnvironmentSays) {
  EXPECT_EQ(describe_waiting("active", "100"),
            "threads that wait spin 100 rounds, then sleep (GOMP_SPINCOUNT)");
  EXPECT_EQ(describe_waiting("active", nullptr),
            "threads wait as OMP_WAIT_POLICY=active says");
  EXPECT_EQ(describe_waiting(nullptr, nullptr),
            "threads wait as OpenMP does by default: they spin for milliseconds");
}

}  // namespace
}  // namespace longhaul::session
