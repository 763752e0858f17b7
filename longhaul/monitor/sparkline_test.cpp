#include "longhaul/monitor/sparkline.h"

#include <gtest/gtest.h>

#include <limits>
#include <vector>

namespace longhaul::monitor {
namespace {

TEST(Sparkline, TheSmallestIsTheLowestBlockAndTheLargestTheHighest) {
  EXPECT_EQ(sparkline(std::vector<double>{8, 7, 6, 5, 4, 3, 2, 1}, 8), "█▇▆▅▄▃▂▁");
  EXPECT_EQ(sparkline(std::vector<double>{-1, 6}, 8), "▁█");
}

TEST(Sparkline, AColumnIsTheMeanOfItsShare) {
  EXPECT_EQ(sparkline(std::vector<double>{0, 2, 7, 9, 15, 15}, 3), "▁▅█");
  // Two columns share three values, so one of them shows one value and the other two.
  EXPECT_EQ(sparkline(std::vector<double>{0, 7, 7}, 2), "▁█");
}

TEST(Sparkline, ValuesThatAreAllAlikeAreALowLine) {
  EXPECT_EQ(sparkline(std::vector<double>{3, 3, 3}, 3), "▁▁▁");
}

TEST(Sparkline, WhatIsNotFiniteIsLeftOut) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const double infinity = std::numeric_limits<double>::infinity();
  EXPECT_EQ(sparkline(std::vector<double>{nan, 0, infinity, 7}, 4), " ▁ █");
  EXPECT_EQ(sparkline(std::vector<double>{7, infinity, 0, nan}, 2), "█▁");
}

TEST(Sparkline, NothingGivesNothing) {
  EXPECT_EQ(sparkline({}, 10), "");
  EXPECT_EQ(sparkline(std::vector<double>{1, 2}, 0), "");
}

TEST(Sparkline, SeveralRowsStandOnOneAnother) {
  EXPECT_EQ(tall_sparkline(std::vector<double>{15, 8, 7, 0}, 4, 2),
            (std::vector<std::string>{"█▁  ", "███▁"}));
  const double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_EQ(tall_sparkline(std::vector<double>{nan, 2}, 2, 2),
            (std::vector<std::string>{"  ", " ▁"}));
}

}  // namespace
}  // namespace longhaul::monitor
