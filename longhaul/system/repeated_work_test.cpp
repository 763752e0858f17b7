#include "longhaul/system/repeated_work.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "longhaul/system/stopwatch.h"

namespace longhaul::system {
namespace {

TEST(RepeatedWork, CallsUntilItGoesAndNotAfterwards) {
  std::atomic<int> calls = 0;
  {
    const RepeatedWork work(0.005, [&] { ++calls; });
    for (const Stopwatch watch; calls < 3 && watch.seconds() < 20.0;) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    EXPECT_GE(calls, 3);
  }
  const int at_the_end = calls;
  std::this_thread::sleep_for(std::chrono::milliseconds(30));
  EXPECT_EQ(calls, at_the_end);
}

TEST(RepeatedWork, GoesAtOnceHoweverLongThePauseIs) {
  const Stopwatch watch;
  int calls = 0;
  {
    const RepeatedWork work(3600.0, [&] { ++calls; });
  }
  EXPECT_LT(watch.seconds(), 20.0);
  EXPECT_EQ(calls, 0);
}

}  // namespace
}  // namespace longhaul::system
