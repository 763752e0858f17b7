#include "longhaul/objects/service/retries.h"

#include <arrow/filesystem/s3fs.h>

#include <algorithm>
#include <cstdlib>
#include <random>
#include <thread>
#include <utility>

#include "longhaul/objects/service/store_errors.h"

namespace longhaul::objects {
namespace {

constexpr double kFirstWait = 0.2;
constexpr double kLongestWait = 10.0;
constexpr int64_t kFewTries = 1;

thread_local bool few_retries = false;

double seconds_before(int64_t attempts) {
  thread_local std::minstd_rand chance(std::random_device{}());
  const double longest = std::min(
      kLongestWait,
      kFirstWait * static_cast<double>(int64_t{1} << std::min<int64_t>(attempts, 10)));
  return longest * std::uniform_real_distribution<double>(0.5, 1.0)(chance);
}

class Retries : public arrow::fs::S3RetryStrategy {
 public:
  explicit Retries(std::shared_ptr<Patience> patience) : patience_(std::move(patience)) {}

  bool ShouldRetry(const AWSErrorDetail& error, int64_t attempted) override {
    thread_local Patience::Clock::time_point since;
    if (attempted == 0) since = Patience::Clock::now();
    if (few_retries && attempted >= kFewTries) return false;
    if (error.message.find(kUntrusted) != std::string::npos) return false;
    // A skewed clock: the client corrects itself by the time of the first answer.
    const bool skewed = error.exception_name == "RequestTimeTooSkewed";
    const bool passing = skewed
                             ? attempted == 0
                             : error.should_retry || error.exception_name == "SlowDown";
    if (!passing || !patience_->has_time(since)) return false;
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

double Patience::asked_for() {
  const char* const text = std::getenv("LONGHAUL_OBJECTS_PATIENCE");
  char* end = nullptr;
  const double seconds = text == nullptr ? 0 : std::strtod(text, &end);
  return text != nullptr && *text != '\0' && *end == '\0' && seconds > 0
             ? seconds
             : kPatienceSeconds;
}

void wait_before_retry(int64_t attempts) {
  std::this_thread::sleep_for(std::chrono::duration<double>(seconds_before(attempts)));
}

FewRetries::FewRetries() { few_retries = true; }
FewRetries::~FewRetries() { few_retries = false; }

std::shared_ptr<arrow::fs::S3RetryStrategy> make_retries(
    std::shared_ptr<Patience> patience) {
  return std::make_shared<Retries>(std::move(patience));
}

}  // namespace longhaul::objects
