#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <future>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

namespace longhaul::data {

/// Threads that work on pieces side by side; the results come out in the order in which
/// the pieces went in, whatever the number of threads. push and pop belong to one thread.
template <typename In, typename Out>
class OrderedWorkers {
 public:
  OrderedWorkers(int threads, std::function<Out(In&)> work) : work_(std::move(work)) {
    for (int i = 0; i < threads; ++i) threads_.emplace_back([this] { run(); });
  }
  ~OrderedWorkers() {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
      queue_.clear();
    }
    ready_.notify_all();
    for (std::thread& thread : threads_) thread.join();
  }
  OrderedWorkers(const OrderedWorkers&) = delete;
  OrderedWorkers& operator=(const OrderedWorkers&) = delete;

  void push(In piece) {
    Task task([this, moved = std::move(piece)]() mutable { return work_(moved); });
    results_.push_back(task.get_future());
    {
      const std::lock_guard lock(mutex_);
      queue_.push_back(std::move(task));
    }
    ready_.notify_one();
  }
  /// Pieces whose results were not taken yet.
  size_t pending() const { return results_.size(); }
  /// The oldest piece's result; waits for it, and throws what its work threw.
  Out pop() {
    std::future<Out> oldest = std::move(results_.front());
    results_.pop_front();
    return oldest.get();
  }

 private:
  using Task = std::packaged_task<Out()>;
  void run() {
    while (true) {
      Task task;
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

  std::function<Out(In&)> work_;
  std::deque<std::future<Out>> results_;
  std::mutex mutex_;
  std::condition_variable ready_;
  std::deque<Task> queue_;
  bool stopping_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace longhaul::data
