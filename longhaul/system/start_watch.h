#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>

namespace longhaul {

/// While it lives, a signal that the SignalWatch notes ends the process with _exit,
/// unless this is gone `grace_seconds` later: for a start, where the main thread may be
/// long busy and nothing is there that would have to be saved.
class StartWatch {
 public:
  /// `say`: a last word, by the thread that ends the process.
  StartWatch(int exit_code, double grace_seconds, std::function<void(int signal)> say);
  ~StartWatch();
  StartWatch(const StartWatch&) = delete;
  StartWatch& operator=(const StartWatch&) = delete;

 private:
  void watch(int exit_code, double grace_seconds);

  std::function<void(int)> say_;
  std::mutex mutex_;
  std::condition_variable ends_;
  bool ended_ = false;
  std::thread thread_;
};

}  // namespace longhaul
