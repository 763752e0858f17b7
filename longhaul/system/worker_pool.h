#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <stop_token>
#include <thread>
#include <utility>
#include <vector>

#include "longhaul/system/signals.h"

namespace longhaul::system {

/// Threads that work on tasks in the order in which they were added. Any thread may add
/// tasks. At the pool's end, tasks that nobody has begun are dropped, and their futures
/// say so.
class WorkerPool {
 public:
  explicit WorkerPool(int threads) {
    for (int i = 0; i < threads; ++i) {
      threads_.emplace_back([this](const std::stop_token& stop) {
        leave_signals_to_main_thread();
        run(stop);
      });
    }
  }
  ~WorkerPool() {
    const std::lock_guard lock(mutex_);
    for (std::jthread& thread : threads_) thread.request_stop();
    queue_.clear();
  }

  /// Adds a task. What the task throws comes out of the future.
  template <typename Work>
  auto add(Work work) -> std::future<decltype(work())> {
    // std::function copies what it holds; a packaged task cannot be copied.
    auto task = std::make_shared<std::packaged_task<decltype(work())()>>(std::move(work));
    auto result = task->get_future();
    {
      const std::lock_guard lock(mutex_);
      queue_.emplace_back([task] { (*task)(); });
    }
    ready_.notify_one();
    return result;
  }

 private:
  void run(const std::stop_token& stop) {
    while (true) {
      std::function<void()> task;
      {
        std::unique_lock lock(mutex_);
        ready_.wait(lock, stop, [this] { return !queue_.empty(); });
        if (stop.stop_requested()) return;
        task = std::move(queue_.front());
        queue_.pop_front();
      }
      task();
    }
  }

  std::mutex mutex_;
  std::condition_variable_any ready_;
  std::deque<std::function<void()>> queue_;
  std::vector<std::jthread> threads_;  ///< the last member, so that it is destroyed first
};

}  // namespace longhaul::system
