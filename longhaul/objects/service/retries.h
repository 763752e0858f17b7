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

  /// Returns whether one more try may begin after a wait of `wait` seconds: by then less
  /// than `seconds` have passed since `since`.
  bool has_time(Clock::time_point since, double wait) const {
    const std::chrono::duration<double> passed = Clock::now() - since;
    return !over && passed.count() + wait < seconds;
  }
  /// Waits before another try, and counts that try. The waits double from 0.2 s to 10 s,
  /// each shortened by chance by up to a half, so that many processes do not come back at
  /// once. Returns false at once if has_time() is false, unless `in_any_case`.
  bool wait_for_retry(Clock::time_point since, int64_t attempts,
                      bool in_any_case = false);
};

/// Seconds after which a request without an answer is given up.
inline constexpr double kRequestSeconds = 30.0;

/// While the object lives, the patience of each request of this thread counts from the
/// time at which the thread began the work that the requests are for. Within another
/// WorkBegan the time of the outer one stays.
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
