#include "longhaul/system/owner_lock.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <optional>
#include <thread>

#include "longhaul/base/error.h"
#include "longhaul/base/json.h"
#include "longhaul/system/stopwatch.h"
#include "tests/support/scratch_directory.h"

namespace longhaul::system {
namespace {

/// A lock that another machine seems to have, renewed just now.
class LockOfAnotherMachine : public testing::Test {
 protected:
  LockOfAnotherMachine() {
    {
      const OwnerLock lock = OwnerLock::acquire(file_);
    }
    Json holder = read_json(file_);
    holder.update({{"released", false}, {"host", "n7"}, {"boot", "b"}, {"token", "x"}});
    write_file(file_, holder.dump());
    options_.lease_seconds = 2.0;
    options_.renew_seconds = 0.2;
    options_.on_watch = [&](const std::string& line) { told_.push_back(line); };
  }
  TestDirectory dir_;
  fs::path file_ = dir_ / "a.lock";
  OwnerLockOptions options_;
  std::vector<std::string> told_;
};

TEST_F(LockOfAnotherMachine, IsTakenWhenItsLeaseHasRunOutAndThatIsSaidBefore) {
  const Stopwatch watch;
  const OwnerLock lock = OwnerLock::acquire(file_, options_);
  EXPECT_GT(watch.seconds(), 1.0);
  EXPECT_LT(watch.seconds(), 4.0);
  EXPECT_EQ(lock.attempt(), 2);
  EXPECT_HAS(lock.notes().at(0), "waited for it");
  ASSERT_EQ(told_.size(), 1U);
  EXPECT_HAS(told_[0], "on host n7");
  EXPECT_HAS(told_[0], "waits until the lease is renewed or runs out, at most 2 s");
}

TEST_F(LockOfAnotherMachine, IsRefusedAsSoonAsItIsSeenRenewed) {
  options_.lease_seconds = 3.0;
  std::atomic<bool> end = false;
  std::jthread holder([&] {
    // The renewals stop after 6 s. A process that does not notice them takes the lock
    // then, instead of waiting for ever.
    for (int i = 0; i < 20 && !end; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(300));
      ::utimensat(AT_FDCWD, file_.c_str(), nullptr, 0);
    }
  });
  const Stopwatch watch;
  EXPECT_THROW(OwnerLock::acquire(file_, options_), InputError);
  EXPECT_LT(watch.seconds(), 3.0);
  end = true;
}

TEST_F(LockOfAnotherMachine, IsRefusedAtOnceWhereNobodyAskedToWatch) {
  options_.on_watch = nullptr;
  const Stopwatch watch;
  EXPECT_THROW(OwnerLock::acquire(file_, options_), InputError);
  EXPECT_LT(watch.seconds(), 1.0);
}

/// A holder on this machine keeps the lock while its process lives, whether the lease is
/// renewed or not.
TEST_F(LockOfAnotherMachine, OfAProcessHereThatLivesIsRefusedAtOnce) {
  const OwnerLock held = OwnerLock::acquire(dir_ / "b.lock", options_);
  EXPECT_THROW(OwnerLock::acquire(dir_ / "b.lock", options_), InputError);
  EXPECT_TRUE(told_.empty());
}

TEST(LockOfAHolder, OfTheSameJobHereIsWaitedForWhereThatIsAsked) {
  const TestDirectory dir;
  ::setenv("SLURM_JOB_ID", "17", 1);
  OwnerLockOptions options;
  options.renew_seconds = 0.02;
  std::optional<OwnerLock> first(OwnerLock::acquire(dir / "a.lock", options));
  EXPECT_THROW(OwnerLock::acquire(dir / "a.lock", options), InputError);
  options.waits_for_own_job = true;
  std::atomic<bool> taken = false;
  std::jthread second([&] {
    const OwnerLock lock = OwnerLock::acquire(dir / "a.lock", options);
    EXPECT_EQ(lock.attempt(), 2);
    taken = true;
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  EXPECT_FALSE(taken);
  first.reset();
  second.join();
  EXPECT_TRUE(taken);
  ::unsetenv("SLURM_JOB_ID");
}

/// The thread that renews the lease goes on even when the thread at work hangs.
TEST(LockOfAHolder, IsRenewedOnlyWhileTheHolderIsAtWork) {
  const TestDirectory dir;
  const fs::path file = dir / "a.lock";
  OwnerLockOptions options;
  options.renew_seconds = 0.02;
  options.idle_seconds = 0.3;
  const OwnerLock lock = OwnerLock::acquire(file, options);
  const auto renewed_in = [&](int turns, const std::function<void()>& work) {
    const auto before = fs::last_write_time(file);
    for (int i = 0; i < turns; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
      work();
    }
    return fs::last_write_time(file) > before;
  };
  EXPECT_TRUE(renewed_in(10, lock.heart()));
  std::this_thread::sleep_for(std::chrono::milliseconds(600));
  EXPECT_FALSE(renewed_in(5, [] {})) << "it hangs";
  EXPECT_TRUE(renewed_in(5, [&] { lock.check(); })) << "and goes on";
}

}  // namespace
}  // namespace longhaul::system
