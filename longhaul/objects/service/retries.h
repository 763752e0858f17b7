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

  double seconds = asked_for();
  std::atomic<bool> over = false;  ///< nothing is tried again any more
  std::atomic<int64_t> requests = 0;
  std::atomic<int64_t> retries = 0;

  bool has_time(Clock::time_point since) const {
    return !over && std::chrono::duration<double>(Clock::now() - since).count() < seconds;
  }
  /// Returns LONGHAUL_OBJECTS_PATIENCE of the environment, else kPatienceSeconds.
  static double asked_for();
};

/// Sleeps before another try: the times double from 0.2 s to 10 s, each shortened by
/// chance by up to a half, so that many processes do not come back at once.
void wait_before_retry(int64_t attempts);

/// While it lives, this thread's requests are tried again but once, since its caller
/// looks what has come of them.
class FewRetries {
 public:
  FewRetries();
  ~FewRetries();
  FewRetries(const FewRetries&) = delete;
  FewRetries& operator=(const FewRetries&) = delete;
};

/// Makes what decides about each request of Arrow's client that has failed.
std::shared_ptr<arrow::fs::S3RetryStrategy> make_retries(
    std::shared_ptr<Patience> patience);

}  // namespace longhaul::objects
