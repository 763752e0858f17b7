#include "longhaul/measure/figures.h"

#include <gtest/gtest.h>

#include <chrono>
#include <thread>

namespace longhaul::measure {
namespace {

Probe sleeper(const char* name, int milliseconds, std::vector<std::string>& order) {
  return {name, "B", 100.0, [=, &order] {
            order.emplace_back(name);
            std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds));
          }};
}

TEST(Measure, TakesEveryProbeInTurnAndRelatesItToTheFirst) {
  std::vector<std::string> order;
  Rounds rounds;
  rounds.count = 3;
  rounds.seconds_each = 0.0;
  size_t last = 0;
  rounds.progress = [&](size_t done, size_t total) {
    last = done;
    EXPECT_EQ(total, 8U);
  };
  const auto rates =
      measure({sleeper("fast", 5, order), sleeper("slow", 20, order)}, rounds);
  EXPECT_EQ(last, 8U);
  EXPECT_EQ(order, (std::vector<std::string>{"fast", "slow", "fast", "slow", "fast",
                                             "slow", "fast", "slow"}));
  ASSERT_EQ(rates.size(), 2U);
  EXPECT_EQ(rates[0].to_first, 1.0);
  EXPECT_LE(rates[0].median, 100.0 / 0.005);
  EXPECT_LE(rates[1].median, 100.0 / 0.020);
  EXPECT_LT(rates[1].to_first, 0.9);
  for (const MeasuredRate& rate : rates) {
    EXPECT_LE(rate.low, rate.median);
    EXPECT_LE(rate.median, rate.high);
  }
}

TEST(Measure, RepeatsARunAsLongAsItIsToldOrAsOften) {
  std::vector<std::string> order;
  Rounds rounds;
  rounds.count = 1;
  rounds.seconds_each = 0.02;
  Probe counted = sleeper("counted", 1, order);
  counted.runs = 3;
  (void)measure({counted}, rounds);
  EXPECT_EQ(order.size(), 6U);  // each of the three probes also ran once before
  order.clear();
  (void)measure({sleeper("timed", 2, order)}, rounds);
  EXPECT_GE(order.size(), 4U);
}

}  // namespace
}  // namespace longhaul::measure
