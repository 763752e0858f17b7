#pragma once

#include <chrono>
#include <functional>
#include <thread>

namespace longhaul::comm {

/// What waits take from the machine. A test brings its own, and counts the sleeps.
struct WaitClock {
  using Clock = std::chrono::steady_clock;
  std::function<Clock::time_point()> now = [] { return Clock::now(); };
  std::function<void(std::chrono::microseconds)> sleep = [](auto time) {
    std::this_thread::sleep_for(time);
  };
};

/// Waits for a device: asks `reached` again and again. In the first millisecond the host
/// never sleeps between two questions, since most waits are shorter than a sleep; then it
/// sleeps a little longer each time, 200 us at most. `meanwhile` is called between two
/// questions. The wait has no limit of its own: `reached` or `meanwhile` must throw when
/// there is nothing to wait for any more.
void wait_for_device(const std::function<bool()>& reached,
                     const std::function<void()>& meanwhile, const WaitClock& clock = {});

}  // namespace longhaul::comm
