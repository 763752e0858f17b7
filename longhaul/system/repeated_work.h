#pragma once

#include <functional>
#include <thread>

namespace longhaul::system {

/// Calls a function again and again on a thread of its own, for as long as it lives. Each
/// call comes `seconds` after the start or the end of the call before.
class RepeatedWork {
 public:
  RepeatedWork(double seconds, std::function<void()> work);

 private:
  std::jthread thread_;
};

}  // namespace longhaul::system
