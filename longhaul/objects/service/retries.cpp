#include "longhaul/objects/service/retries.h"

#include <arrow/filesystem/s3fs.h>

#include <algorithm>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <utility>

#include "longhaul/objects/service/store_errors.h"

namespace longhaul::objects {
namespace {

constexpr double kFirstWait = 0.2;
constexpr double kLongestWait = 10.0;
constexpr int64_t kFewTries = 1;

thread_local bool few_retries = false;
thread_local std::optional<Patience::Clock::time_point> work_began;

double longest_wait(int64_t attempts) {
  return std::min(
      kLongestWait,
      kFirstWait * static_cast<double>(int64_t{1} << std::min<int64_t>(attempts, 10)));
}

double seconds_before(int64_t attempts) {
  thread_local std::minstd_rand chance(std::random_device{}());
  return longest_wait(attempts) *
         std::uniform_real_distribution<double>(0.5, 1.0)(chance);
}

/// Returns when a request began whose first try has failed now. Threads of Arrow have no
/// WorkBegan. For them, a try without an answer counts as kRequestSeconds long, and any
/// other failed try as instant.
Patience::Clock::time_point began_before(const std::string& message) {
  if (work_began) return *work_began;
  constexpr const char* kNoAnswer = "curlCode: 28";
  const double taken =
      message.find(kNoAnswer) == std::string::npos ? 0.0 : kRequestSeconds;
  return Patience::Clock::now() - std::chrono::duration_cast<Patience::Clock::duration>(
                                      std::chrono::duration<double>(taken));
}

class Retries : public arrow::fs::S3RetryStrategy {
 public:
  explicit Retries(std::shared_ptr<Patience> patience) : patience_(std::move(patience)) {}

  bool ShouldRetry(const AWSErrorDetail& error, int64_t attempted) override {
    thread_local Patience::Clock::time_point since;
    if (attempted == 0) since = began_before(error.message);
    if (few_retries && attempted >= kFewTries) return false;
    if (error.message.find(kUntrusted) != std::string::npos) return false;
    // If the clock is skewed, the client corrects itself by the time in the first answer.
    const bool skewed = error.exception_name == "RequestTimeTooSkewed";
    const bool passing = skewed
                             ? attempted == 0
                             : error.should_retry || error.exception_name == "SlowDown";
    if (!passing) return false;
    if (!patience_->has_time(since, longest_wait(attempted))) {
      ++patience_->given_up;
      return false;
    }
    ++patience_->retries;
    return true;
  }
  int64_t CalculateDelayBeforeNextRetry(const AWSErrorDetail& /*error*/,
                                        int64_t attempted) override {
    return static_cast<int64_t>(1000 * seconds_before(attempted));
  }

 private:
  std::shared_ptr<Patience> patience_;
};

}  // namespace

bool Patience::wait_for_retry(Clock::time_point since, int64_t attempts,
                              bool in_any_case) {
  const double wait = seconds_before(attempts);
  if (over || !(in_any_case || has_time(since, wait))) return false;
  ++retries;
  std::this_thread::sleep_for(std::chrono::duration<double>(wait));
  return true;
}

WorkBegan::WorkBegan(Patience::Clock::time_point time) : outermost_(!work_began) {
  if (outermost_) work_began = time;
}
WorkBegan::~WorkBegan() {
  if (outermost_) work_began.reset();
}
Patience::Clock::time_point WorkBegan::time() {
  return work_began.value_or(Patience::Clock::now());
}

FewRetries::FewRetries() { few_retries = true; }
FewRetries::~FewRetries() { few_retries = false; }

std::shared_ptr<arrow::fs::S3RetryStrategy> make_retries(
    std::shared_ptr<Patience> patience) {
  return std::make_shared<Retries>(std::move(patience));
}

}  // namespace longhaul::objects
