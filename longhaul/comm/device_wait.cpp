#include "longhaul/comm/device_wait.h"

#include <algorithm>
#include <chrono>
#include <thread>

namespace longhaul::comm {

void wait_for_device(const std::function<bool()>& reached,
                     const std::function<void()>& meanwhile) {
  constexpr auto kLongestSleep = std::chrono::microseconds(200);
  auto sleep = std::chrono::microseconds(5);
  while (!reached()) {
    meanwhile();
    std::this_thread::sleep_for(sleep);
    sleep = std::min(sleep * 2, kLongestSleep);
  }
}

}  // namespace longhaul::comm
