#include "longhaul/cluster/requeue_count.h"

#include <gtest/gtest.h>

#include "longhaul/base/test_files.h"

namespace longhaul::cluster {
namespace {

TEST(RequeueCount, RequeuesInVainWaitLongerAndEndAfterTwenty) {
  const TestDirectory dir;
  std::vector<double> waits;
  for (int i = 0; i < 20; ++i) {
    const RequeueDecision decision = count_requeue(dir.path(), "7", 10);
    ASSERT_TRUE(decision.allowed) << i;
    waits.push_back(decision.wait_seconds);
  }
  EXPECT_EQ(std::vector<double>(waits.begin(), waits.begin() + 5),
            (std::vector<double>{0, 0, 30, 60, 120}));
  EXPECT_EQ(waits.back(), 1800.0);
  const RequeueDecision last = count_requeue(dir.path(), "7", 10);
  EXPECT_FALSE(last.allowed);
  EXPECT_NE(last.reason.find("job 7 went back to the queue 20 times"), std::string::npos);
}

TEST(RequeueCount, ANewerCheckpointOrAnotherJobBeginsTheCountAnew) {
  const TestDirectory dir;
  for (int i = 0; i < 20; ++i) count_requeue(dir.path(), "7", 10);
  EXPECT_EQ(count_requeue(dir.path(), "7", 11).wait_seconds, 0.0);
  for (int i = 0; i < 20; ++i) count_requeue(dir.path(), "7", 11);
  EXPECT_FALSE(count_requeue(dir.path(), "7", 11).allowed);
  EXPECT_TRUE(count_requeue(dir.path(), "8", 11).allowed);
}

TEST(RequeueCount, ARecordThatCannotBeReadKeepsNobodyFromTheQueue) {
  const TestDirectory dir;
  fs::create_directories(dir / "control");
  write_text_durable(dir / "control/requeues.json", "no json");
  EXPECT_TRUE(count_requeue(dir.path(), "7", 1).allowed);
}

}  // namespace
}  // namespace longhaul::cluster
