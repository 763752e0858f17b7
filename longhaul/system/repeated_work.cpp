#include "longhaul/system/repeated_work.h"

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <stop_token>
#include <utility>

#include "longhaul/system/signals.h"

namespace longhaul::system {

RepeatedWork::RepeatedWork(double seconds, std::function<void()> work)
    : thread_([seconds, work = std::move(work)](const std::stop_token& stop) {
        leave_signals_to_main_thread();
        std::mutex mutex;
        std::unique_lock lock(mutex);
        std::condition_variable_any wake;
        const auto ends = [&] { return stop.stop_requested(); };
        const std::chrono::duration<double> pause(seconds);
        while (!wake.wait_for(lock, stop, pause, ends)) work();
      }) {}

}  // namespace longhaul::system
