#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "longhaul/system/signals.h"

namespace longhaul {

/// Threads that work on tasks in the order in which they were added. Any thread may add
/// tasks. At the pool's end, tasks that nobody has begun are dropped, and their futures
/// say so.
class WorkerPool {
 public:
  explicit WorkerPool(int threads) {
    try {
      for (int i = 0; i < threads; ++i) {
        threads_.emplace_back([this] {
          leave_signals_to_main_thread();
          run();
        });
      }
    } catch (...) {  // the system has refused a thread
      end();
      throw;
    }
  }
  ~WorkerPool() { end(); }
  WorkerPool(const WorkerPool&) = delete;
  WorkerPool& operator=(const WorkerPool&) = delete;

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
  void end() {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
      queue_.clear();
    }
    ready_.notify_all();
    for (std::thread& thread : threads_) thread.join();
  }
  void run() {
    while (true) {
      std::function<void()> task;
      {
        std::unique_lock lock(mutex_);
        ready_.wait(lock, [this] { return stopping_ || !queue_.empty(); });
        if (stopping_) return;
        task = std::move(queue_.front());
        queue_.pop_front();
      }
      task();
    }
  }

  std::mutex mutex_;
  std::condition_variable ready_;
  std::deque<std::function<void()>> queue_;
  bool stopping_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace longhaul
