#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>

#include "longhaul/objects/protocol.h"

namespace arrow::fs {
class S3RetryStrategy;
}

namespace longhaul::objects {

/// Says for how long requests are tried again, and counts them. Any thread may use it.
struct Patience {
  using Clock = std::chrono::steady_clock;

  double seconds = patience_seconds();
  std::atomic<bool> over = false;  ///< nothing is tried again any more
  std::atomic<int64_t> requests = 0;
  std::atomic<int64_t> retries = 0;
  std::atomic<int64_t> given_up = 0;  ///< requests that the client has given up

  /// Returns whether less than `seconds` have passed since a time once another wait is
  /// over, so that one more try may begin.
  bool has_time(Clock::time_point since, double wait) const {
    const std::chrono::duration<double> passed = Clock::now() - since;
    return !over && passed.count() + wait < seconds;
  }
  /// Waits before another try, and counts it: the times double from 0.2 s to 10 s, each
  /// shortened by chance by up to a half, so that many processes do not come back at
  /// once. Returns false at once where there is no time for that, unless `in_any_case`.
  bool wait_for_retry(Clock::time_point since, int64_t attempts,
                      bool in_any_case = false);
};

/// Seconds after which a request is given up that gets no answer.
inline constexpr double kRequestSeconds = 30.0;

/// Says when the work began for which this thread sends requests. While the object lives,
/// the patience of each request counts from that time. Within another WorkBegan the time
/// of the outer one stays.
class WorkBegan {
 public:
  explicit WorkBegan(Patience::Clock::time_point time = Patience::Clock::now());
  ~WorkBegan();
  WorkBegan(const WorkBegan&) = delete;
  WorkBegan& operator=(const WorkBegan&) = delete;

  static Patience::Clock::time_point time();

 private:
  bool outermost_;
};

/// While the object lives, each request of this thread is tried again only once, since
/// the caller itself finds out whether the request has succeeded.
class FewRetries {
 public:
  FewRetries();
  ~FewRetries();
  FewRetries(const FewRetries&) = delete;
  FewRetries& operator=(const FewRetries&) = delete;
};

/// Makes the strategy by which Arrow's client decides whether a request that failed is
/// tried again.
std::shared_ptr<arrow::fs::S3RetryStrategy> make_retries(
    std::shared_ptr<Patience> patience);

}  // namespace longhaul::objects
