#include "longhaul/comm/device_wait.h"

#include <sched.h>

#include <algorithm>

namespace longhaul::comm {

void wait_for_device(const std::function<bool()>& reached,
                     const std::function<void()>& meanwhile, const WaitClock& clock) {
  constexpr auto kAwake = std::chrono::milliseconds(1);
  constexpr auto kLongestSleep = std::chrono::microseconds(200);
  if (reached()) return;
  const auto sleeps_from = clock.now() + kAwake;
  auto sleep = std::chrono::microseconds(5);
  do {
    meanwhile();
    if (clock.now() < sleeps_from) {
      ::sched_yield();  // another thread may need this core
    } else {
      clock.sleep(sleep);
      sleep = std::min(sleep * 2, kLongestSleep);
    }
  } while (!reached());
}

}  // namespace longhaul::comm
