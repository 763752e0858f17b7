#pragma once

#include <cstddef>
#include <deque>
#include <functional>
#include <future>
#include <utility>

#include "longhaul/system/worker_pool.h"

namespace longhaul::data {

/// A WorkerPool whose results come out in the order in which the pieces went in, whatever
/// the number of threads. push and pop belong to one thread.
template <typename In, typename Out>
class OrderedWorkers {
 public:
  OrderedWorkers(int threads, std::function<Out(In&)> work)
      : work_(std::move(work)), pool_(threads) {}

  void push(In piece) {
    results_.push_back(
        pool_.add([this, moved = std::move(piece)]() mutable { return work_(moved); }));
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
  std::function<Out(In&)> work_;
  std::deque<std::future<Out>> results_;
  WorkerPool pool_;  // last: its threads end before what they use
};

}  // namespace longhaul::data
