#include "longhaul/train/history/running_means.h"

#include <cmath>

#include "tests/support/scratch_directory.h"

namespace longhaul::train {
namespace {

run::StepRecord timed_step(double loss, double seconds) {
  run::StepRecord record;
  record.loss = loss;
  record.step_time = seconds;
  record.seqs_per_s = 10.0 / seconds;
  record.tokens_per_s = 1000.0 / seconds;
  return record;
}

TEST(RunningMeans, AreOfTheLastStepsAndLeaveTheTimeOfTheFirstOut) {
  RunningMeans means(3);
  EXPECT_EQ(means.describe(), "");
  means.add(timed_step(4.0, 60.0));
  EXPECT_TRUE(means.warms_up());
  EXPECT_EQ(means.describe(), "");  // one step is no mean
  EXPECT_DOUBLE_EQ(means.step_time(), 60.0);
  means.add(timed_step(3.0, 2.0));
  EXPECT_FALSE(means.warms_up());
  EXPECT_EQ(means.steps(), 2);
  EXPECT_EQ(means.timed_steps(), 1);
  EXPECT_DOUBLE_EQ(means.loss(), 3.5);
  EXPECT_DOUBLE_EQ(means.step_time(), 2.0);
  EXPECT_DOUBLE_EQ(means.tokens_per_s(), 500.0);
  means.add(timed_step(2.0, 3.0));
  means.add(timed_step(1.0, 5.0));  // the first step has left the window
  EXPECT_EQ(means.timed_steps(), 3);
  EXPECT_DOUBLE_EQ(means.loss(), 2.0);
  EXPECT_DOUBLE_EQ(means.seqs_per_s(), 3.0);
  EXPECT_EQ(means.describe(),
            "mean of 3: step_time 3.333s throughput 3.00 seq/s 300 tok/s loss 2.00000");
}

TEST(RunningMeans, ALossThatIsNotFiniteSpoilsNoMean) {
  RunningMeans means(4);
  means.add(timed_step(2.0, 1.0));
  means.add(timed_step(NAN, 1.0));
  means.add(timed_step(4.0, 1.0));
  EXPECT_DOUBLE_EQ(means.loss(), 3.0);
  means.clear();
  EXPECT_TRUE(std::isnan(means.loss()));
  means.add(timed_step(2.0, 1.0));
  EXPECT_FALSE(means.warms_up());
}

TEST(RunningMeans, AWindowOfOneSaysNothing) {
  RunningMeans means(1);
  for (int i = 0; i < 3; ++i) means.add(timed_step(1.0, 1.0));
  EXPECT_EQ(means.describe(), "");
}

}  // namespace
}  // namespace longhaul::train
