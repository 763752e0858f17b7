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

TEST(Clock, ReadsTheDatesOfIso8601) {
  constexpr int64_t kMidnight = 1'798'070'400;  // `date -u -d 2026-12-24 +%s`
  EXPECT_EQ(utc_seconds("2026-12-24"), kMidnight);
  EXPECT_EQ(utc_seconds("2026-12-24T18:00"), kMidnight + 18 * 3600);
  EXPECT_EQ(utc_seconds("2026-12-24 18:00:30"), kMidnight + 18 * 3600 + 30);
  EXPECT_EQ(utc_seconds("2026-12-24T18:00:30Z"), kMidnight + 18 * 3600 + 30);
  EXPECT_EQ(utc_seconds("2026-12-24T18:00:30+01:30"), kMidnight + 16 * 3600 + 1830);
  EXPECT_EQ(utc_seconds("2026-12-24T18:00-01:00"), kMidnight + 19 * 3600);
  EXPECT_EQ(utc_seconds("1970-01-01"), 0);
  for (const char* text :
       {"", "2026", "2026-12", "2026-2-1", "2026-02-29", "2026-13-01", "26-12-24",
        "today", "2026-12-24T", "2026-12-24T18", "2026-12-24T24:00", "2026-12-24T18:60",
        "2026-12-24T18:00:60", "2026-12-24T18:00:30.5", "2026-12-24T18:00+1",
        "2026-12-24T18:00+01:00Z", "2026-12-24X18:00", " 2026-12-24"}) {
    EXPECT_EQ(utc_seconds(text), std::nullopt) << text;
  }
  EXPECT_EQ(utc_text(kMidnight), "2026-12-24T00:00:00Z");
}

}  // namespace
}  // namespace longhaul
