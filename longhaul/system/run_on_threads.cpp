#include "longhaul/system/run_on_threads.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <future>
#include <thread>
#include <vector>

#include "longhaul/base/failure.h"
#include "longhaul/system/signals.h"

namespace longhaul::system {

void run_on_threads(int count, const std::function<void(int)>& work) {
  const auto size = static_cast<size_t>(std::max(count, 0));
  std::vector<std::exception_ptr> problems(size);
  const auto run = [&](size_t number) {
    try {
      work(static_cast<int>(number));
    } catch (...) {
      problems[number] = std::current_exception();
    }
  };
  std::promise<bool> all_are_there;
  const std::shared_future<bool> begins = all_are_there.get_future().share();
  {
    // The threads are joined at the end of the block, even after an exception.
    std::vector<std::jthread> others;
    others.reserve(size);
    try {
      for (size_t number = 1; number < size; ++number) {
        others.emplace_back([&run, begins, number] {
          leave_signals_to_main_thread();
          if (begins.get()) run(number);
        });
      }
    } catch (...) {
      all_are_there.set_value(false);
      Failure::of([] { throw; })->raise();
    }
    all_are_there.set_value(true);
    if (size > 0) run(0);
  }
  for (const std::exception_ptr& problem : problems) {
    if (problem) std::rethrow_exception(problem);
  }
}

void share_among_threads(int64_t items, int threads,
                         const std::function<void(int64_t)>& work) {
  std::atomic<int64_t> next = 0;
  const int64_t count = std::min<int64_t>(std::max(threads, 1), items);
  run_on_threads(static_cast<int>(count), [&](int) {
    try {
      for (int64_t item = next++; item < items; item = next++) work(item);
    } catch (...) {
      next = items;
      throw;
    }
  });
}

}  // namespace longhaul::system
