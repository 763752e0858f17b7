#include "longhaul/system/run_on_threads.h"

#include <gtest/gtest.h>
#include <pthread.h>

#include <atomic>
#include <mutex>
#include <set>
#include <thread>

#include "longhaul/base/error.h"
#include "longhaul/system/worker_pool.h"
#include "tests/support/scratch_directory.h"

namespace longhaul::system {
namespace {

/// Threads need memory for their stacks. If a stack is larger than what a process can
/// address, no thread can be started, even by root.
class NoMemoryForThreads {
 public:
  NoMemoryForThreads() {
    ::pthread_getattr_default_np(&before_);
    pthread_attr_t large;
    ::pthread_attr_init(&large);
    ::pthread_attr_setstacksize(&large, size_t{1} << 47);
    ::pthread_setattr_default_np(&large);
    ::pthread_attr_destroy(&large);
  }
  ~NoMemoryForThreads() {
    ::pthread_setattr_default_np(&before_);
    ::pthread_attr_destroy(&before_);
  }
  NoMemoryForThreads(const NoMemoryForThreads&) = delete;
  NoMemoryForThreads& operator=(const NoMemoryForThreads&) = delete;

 private:
  pthread_attr_t before_{};
};

TEST(RunOnThreads, EachNumberRunsOnceOnAThreadOfItsOwn) {
  std::mutex mutex;
  std::set<int> numbers;
  std::set<std::thread::id> threads;
  run_on_threads(5, [&](int number) {
    const std::lock_guard lock(mutex);
    EXPECT_TRUE(numbers.insert(number).second);
    threads.insert(std::this_thread::get_id());
  });
  EXPECT_EQ(numbers, (std::set<int>{0, 1, 2, 3, 4}));
  EXPECT_EQ(threads.size(), 5U);
  EXPECT_TRUE(threads.contains(std::this_thread::get_id()));
}

TEST(RunOnThreads, TheLowestFailureComesOutWhenAllHaveEnded) {
  std::atomic<int> ended = 0;
  const std::string message = message_of<InputError>([&] {
    run_on_threads(4, [&](int number) {
      ++ended;
      if (number > 0) throw InputError("test", std::to_string(number));
    });
  });
  EXPECT_EQ(message, "[test] 1");
  EXPECT_EQ(ended, 4);
}

TEST(RunOnThreads, WithoutAThreadNothingBeginsAndTheLimitIsNamed) {
  std::atomic<int> begun = 0;
  std::string message;
  {
    const NoMemoryForThreads none;
    message =
        message_of<TemporaryError>([&] { run_on_threads(4, [&](int) { ++begun; }); });
  }
  EXPECT_HAS(message, "[thread] the system gives this process no thread");
  EXPECT_HAS(message, "/proc/sys/kernel/threads-max is ");
  EXPECT_EQ(begun, 0);
}

TEST(WorkerPool, WithoutAThreadItIsAnErrorAndNotTheEndOfTheProcess) {
  const NoMemoryForThreads none;
  EXPECT_THROW(WorkerPool(4), std::exception);
}

TEST(ShareAmongThreads, EachItemIsDoneOnce) {
  for (const int threads : {0, 1, 3, 50}) {
    std::vector<std::atomic<int>> done(20);
    share_among_threads(20, threads,
                        [&](int64_t item) { ++done[static_cast<size_t>(item)]; });
    for (const auto& times : done) EXPECT_EQ(times, 1) << threads << " threads";
  }
  share_among_threads(0, 4, [](int64_t) { FAIL(); });
}

TEST(ShareAmongThreads, NothingIsBegunAfterAFailure) {
  std::atomic<int64_t> most = 0;
  EXPECT_THROW(share_among_threads(1'000'000, 1,
                                   [&](int64_t item) {
                                     most = item;
                                     if (item == 7) throw InputError("test", "7");
                                   }),
               InputError);
  EXPECT_EQ(most, 7);
}

}  // namespace
}  // namespace longhaul::system
