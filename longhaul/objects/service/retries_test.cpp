#include "longhaul/objects/service/retries.h"

#include <arrow/filesystem/s3fs.h>
#include <gtest/gtest.h>

#include <chrono>
#include <memory>

namespace longhaul::objects {
namespace {

using std::chrono::seconds;
using Clock = Patience::Clock;

arrow::fs::S3RetryStrategy::AWSErrorDetail passing(const char* message) {
  return {0, message, "", true};
}

/// A Patience of five seconds, and a strategy of retries that decides by it.
class Retries : public testing::Test {
 protected:
  Retries() { patience_->seconds = 5; }
  std::shared_ptr<Patience> patience_ = std::make_shared<Patience>();
  std::shared_ptr<arrow::fs::S3RetryStrategy> strategy_ = make_retries(patience_);
};

TEST_F(Retries, TheFirstTryCountsAndSoDoesTheWaitToCome) {
  {
    const WorkBegan began(Clock::now() - seconds(30));
    EXPECT_FALSE(strategy_->ShouldRetry(passing("no answer"), 0));
  }
  const WorkBegan began(Clock::now());
  EXPECT_TRUE(strategy_->ShouldRetry(passing("no answer"), 0));
  EXPECT_TRUE(strategy_->ShouldRetry(passing("no answer"), 4));   // 3.2 s at most
  EXPECT_FALSE(strategy_->ShouldRetry(passing("no answer"), 5));  // 6.4 s at most
  EXPECT_EQ(patience_->retries, 2);
  patience_->over = true;
  EXPECT_FALSE(strategy_->ShouldRetry(passing("no answer"), 0));
}

TEST_F(Retries, OfAThreadWhoseWorkIsUnknownCountFromTheFirstFailure) {
  EXPECT_TRUE(strategy_->ShouldRetry(passing("again"), 0));
  EXPECT_FALSE(strategy_->ShouldRetry(passing("curlCode: 28, Timeout was reached"), 0));
}

TEST_F(Retries, WorkInOtherWorkHasItsTime) {
  const Clock::time_point before = Clock::now() - seconds(3);
  {
    const WorkBegan outer(before);
    const WorkBegan inner;
    EXPECT_EQ(WorkBegan::time(), before);
  }
  EXPECT_GT(WorkBegan::time(), before);
  EXPECT_FALSE(patience_->wait_for_retry(Clock::now() - seconds(6), 0));
  EXPECT_EQ(patience_->retries, 0);
}

TEST_F(Retries, LongWorkIsTriedOnceMoreUnlessTheClientHasTriedForSoLong) {
  const Clock::time_point before = Clock::now() - seconds(6);
  EXPECT_TRUE(patience_->wait_for_retry(before, 0, /*in_any_case=*/true));
  EXPECT_EQ(patience_->given_up, 0);
  {
    const WorkBegan began(before);
    EXPECT_FALSE(strategy_->ShouldRetry(passing("no answer"), 0));
  }
  EXPECT_EQ(patience_->given_up, 1);
  patience_->over = true;
  EXPECT_FALSE(patience_->wait_for_retry(before, 0, /*in_any_case=*/true));
}

}  // namespace
}  // namespace longhaul::objects
