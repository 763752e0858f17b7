#include "longhaul/base/clock.h"

#include <gtest/gtest.h>

#include "longhaul/base/process.h"

namespace longhaul {
namespace {

TEST(Clock, OfAProcessGoesOnFromTheWallClock) {
  EXPECT_NEAR(unix_time(), system_time(), 0.5);
  const double first = machine_seconds();
  EXPECT_GE(machine_seconds(), first);
  EXPECT_NEAR(own_clock().booted + machine_seconds(), unix_time(), 1e-3);
  EXPECT_EQ(own_clock().boot.size(), 8U);
}

TEST(Clock, NoJumpIsFoundWhereNoneWas) {
  ClockWatch watch;
  EXPECT_FALSE(watch.look());
  EXPECT_FALSE(watch.look());
}

TEST(Clock, AJumpIsSaidWithItsDirection) {
  EXPECT_NE(describe_jump(7200.0).find("ahead by 7200.0 s"), std::string::npos);
  EXPECT_NE(describe_jump(-60.0).find("back by 60.0 s"), std::string::npos);
}

}  // namespace
}  // namespace longhaul
