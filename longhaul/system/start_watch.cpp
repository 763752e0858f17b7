#include "longhaul/system/start_watch.h"

#include <unistd.h>

#include <chrono>
#include <utility>

#include "longhaul/system/signals.h"
#include "longhaul/system/stopwatch.h"

namespace longhaul {
namespace {

constexpr auto kBetweenLooks = std::chrono::milliseconds(50);

}  // namespace

StartWatch::StartWatch(int exit_code, double grace_seconds,
                       std::function<void(int signal)> say)
    : say_(std::move(say)),
      thread_([this, exit_code, grace_seconds] { watch(exit_code, grace_seconds); }) {}

StartWatch::~StartWatch() {
  {
    const std::lock_guard lock(mutex_);
    ended_ = true;
  }
  ends_.notify_all();
  thread_.join();
}

void StartWatch::watch(int exit_code, double grace_seconds) {
  leave_signals_to_main_thread();
  Stopwatch since;
  bool raised = false;
  std::unique_lock lock(mutex_);
  while (!ended_) {
    const int signal = raised_signal().number;
    if (signal != 0 && !std::exchange(raised, true)) since = Stopwatch();
    if (raised && since.seconds() >= grace_seconds) {
      say_(signal);
      ::_exit(exit_code);
    }
    ends_.wait_for(lock, kBetweenLooks);
  }
}

}  // namespace longhaul
