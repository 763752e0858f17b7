#include "longhaul/monitor/run_clock.h"

#include <gtest/gtest.h>

namespace longhaul::monitor {
namespace {

run::EventHead event_of(const char* boot, double booted, double time, int attempt = -1) {
  return {"start", time, boot, booted, attempt};
}

TEST(RunClock, TakesAJumpBetweenTwoStartsOnAMachineOutBothWays) {
  for (const double jump : {4 * 3600.0, -4 * 3600.0}) {
    RunClock clock;
    EXPECT_EQ(clock.time_of(event_of("a", 1e6, 1e6 + 100, 1)), 1e6 + 100);
    EXPECT_EQ(clock.time_of(event_of("a", 1e6 + jump, 1e6 + 160 + jump, 2)), 1e6 + 160);
    // The first writer keeps its own clock.
    EXPECT_EQ(clock.time_of(event_of("a", 1e6, 1e6 + 200)), 1e6 + 200);
    EXPECT_EQ(clock.shift_of(1), 0.0);
    EXPECT_EQ(clock.shift_of(2), -jump);
    EXPECT_EQ(clock.shift_of(3), 0.0);
  }
}

TEST(RunClock, AMachineThatIsBehindBeginsWithTheNewestTime) {
  RunClock clock;
  clock.time_of(event_of("a", 1e6, 1e6 + 100, 1));
  EXPECT_EQ(clock.time_of(event_of("b", 5e5, 5e5 + 50, 2)), 1e6 + 100);
  EXPECT_EQ(clock.time_of(event_of("b", 5e5, 5e5 + 60, 2)), 1e6 + 110);
  // A clock that is only a moment behind is believed, and so is a clock that is ahead.
  EXPECT_EQ(clock.time_of(event_of("c", 9e5, 1e6 + 108, 3)), 1e6 + 108);
  EXPECT_EQ(clock.time_of(event_of("d", 9e5, 1e6 + 9000, 4)), 1e6 + 9000);
}

TEST(RunClock, LeavesTimesWithoutAClockAsTheyAre) {
  RunClock clock;
  EXPECT_EQ(clock.time_of(event_of("", 0.0, 5.0)), 5.0);
  EXPECT_EQ(clock.time_of(event_of("", 0.0, -1.0)), -1.0);
  EXPECT_EQ(clock.time_of(event_of("a", -1.0, 7.0)), 7.0);
  EXPECT_EQ(clock.now(123.0), 123.0);
}

}  // namespace
}  // namespace longhaul::monitor
