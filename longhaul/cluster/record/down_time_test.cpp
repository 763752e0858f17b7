#include "longhaul/cluster/record/down_time.h"

#include <gtest/gtest.h>

#include "tests/support/scratch_directory.h"

namespace longhaul::cluster {
namespace {

class DownTimeOfRun : public ::testing::Test {
 protected:
  void row(int step, int attempt, double time, double seconds) {
    write("metrics.jsonl", {{"step", step},
                            {"attempt", attempt},
                            {"grad_norm", 1.0},
                            {"step_time_s", seconds},
                            {"time", time}});
  }
  void event(const char* name, int step, int attempt, double time) {
    write("events.jsonl",
          {{"event", name}, {"step", step}, {"attempt", attempt}, {"time", time}});
  }
  void write(const char* name, const Json& line) {
    File::open_append(dir_ / name).write(line.dump() + "\n");
  }

  TestDirectory dir_;
  DownTime down_{dir_.path(), 45.0};
};

TEST_F(DownTimeOfRun, IsFromTheLastRowBeforeTheFaultToTheBeginOfTheFirstStepAfterIt) {
  event("start", 0, 1, 100.0);
  for (int step = 1; step <= 15; ++step) row(step, 1, 100.0 + step, 1.0);
  EXPECT_FALSE(down_.fault(175.0));  // found after a minute of silence
  down_.restarts({{"restart", 1}});
  EXPECT_FALSE(down_.look());
  event("start", 10, 2, 180.0);
  EXPECT_FALSE(down_.look());
  row(11, 2, 184.0, 1.5);
  row(12, 2, 185.0, 1.0);
  const auto done = down_.look();
  ASSERT_TRUE(done);
  EXPECT_EQ((*done)["restart"], 1);
  EXPECT_EQ((*done)["from_step"], 10);
  EXPECT_DOUBLE_EQ((*done)["seconds_down"], 182.5 - 115.0);
  EXPECT_FALSE(down_.look());
  EXPECT_FALSE(down_.give_up(200.0));
}

TEST_F(DownTimeOfRun, OfAStartThatFailsBeforeAStepIsCountedOnce) {
  row(7, 1, 100.0, 1.0);
  (void)down_.fault(102.0);
  down_.restarts({{"restart", 1}});
  event("start", 5, 2, 105.0);
  const auto first = down_.fault(110.0);
  ASSERT_TRUE(first);
  EXPECT_EQ((*first)["from_step"], 5);
  EXPECT_DOUBLE_EQ((*first)["seconds_down"], 10.0);
  down_.restarts({{"restart", 2}});
  const auto second = down_.fault(116.0);
  ASSERT_TRUE(second);
  EXPECT_TRUE((*second)["from_step"].is_null());  // no rank has told its step
  EXPECT_DOUBLE_EQ((*second)["seconds_down"], 6.0);
  down_.restarts({{"restart", 3}});
  event("start", 5, 4, 120.0);
  row(6, 4, 122.0, 1.0);
  const auto third = down_.give_up(130.0);
  ASSERT_TRUE(third);
  EXPECT_EQ((*third)["from_step"], 5);
  EXPECT_DOUBLE_EQ((*third)["seconds_down"], 5.0);
}

TEST_F(DownTimeOfRun, NeedsNoFilesAndPassesOverTornLines) {
  row(9, 0, 20.0, 1.0);  // a record of an earlier supervisor
  EXPECT_FALSE(down_.fault(50.0));
  down_.restarts({{"restart", 1}});
  File::open_append(dir_ / "metrics.jsonl").write("{\"step\": 1, \"att\n[]\n");
  row(1, 1, 60.0, 2.0);
  File::open_append(dir_ / "metrics.jsonl").write("{\"step\": 2");
  const auto done = down_.look();
  ASSERT_TRUE(done);
  EXPECT_EQ((*done)["from_step"], 0);
  EXPECT_DOUBLE_EQ((*done)["seconds_down"], 13.0);
}

TEST_F(DownTimeOfRun, ReadsTheEndsOfFilesOfAnyLength) {
  for (int step = 1; step <= 20'000; ++step) row(step, 1, 1000.0 + step, 1.0);
  (void)down_.fault(21'100.0);
  down_.restarts({{"restart", 1}});
  event("start", 19'995, 2, 21'150.0);
  row(19'996, 2, 21'200.0, 1.0);
  const auto done = down_.look();
  ASSERT_TRUE(done);
  EXPECT_DOUBLE_EQ((*done)["seconds_down"], 199.0);
}

}  // namespace
}  // namespace longhaul::cluster
