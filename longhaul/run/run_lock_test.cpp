#include "longhaul/run/run_lock.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <thread>

#include "longhaul/base/error.h"
#include "longhaul/base/json.h"
#include "tests/support/scratch_directory.h"

namespace longhaul::run {
namespace {

// Rewrites the lock as if another start held it.
void pretend(const fs::path& run, const Json& changes) {
  Json lock = read_json(run / "run.lock");
  lock["released"] = false;
  lock.update(changes);
  write_file(run / "run.lock", lock.dump());
}

void age_lease(const fs::path& run, int seconds) {
  const timespec old = {::time(nullptr) - seconds, 0};
  const timespec times[2] = {old, old};
  ASSERT_EQ(::utimensat(AT_FDCWD, (run / "run.lock").c_str(), times, 0), 0);
}

TEST(RunLock, AttemptsGoOnFromWhereAnotherRecordHasCounted) {
  const TestDirectory dir;
  RunLockOptions options;
  options.least_attempt = 7;
  EXPECT_EQ(RunLock::acquire(dir / "run", options).attempt(), 7);
  EXPECT_EQ(RunLock::acquire(dir / "run").attempt(), 8);
  EXPECT_EQ(RunLock::acquire(dir / "run", options).attempt(), 9);
}

TEST(RunLock, AttemptsCountTheStartsOfARun) {
  const TestDirectory dir;
  for (int attempt = 1; attempt <= 3; ++attempt) {
    const RunLock lock = RunLock::acquire(dir / "run");
    EXPECT_EQ(lock.attempt(), attempt);
    EXPECT_TRUE(lock.notes().empty());
    lock.check();
  }
}

TEST(RunLock, AnAttemptThatDoesNotCountLeavesItsNumberAndTheHolderBefore) {
  const TestDirectory dir;
  const auto uncounted = [&] {
    RunLock lock = RunLock::acquire(dir.path());
    lock.set_counts(false);
    return lock.attempt();
  };
  EXPECT_EQ(uncounted(), 1);
  EXPECT_EQ(read_json(dir / "run.lock").at("attempt"), 0);
  {
    RunLock::acquire(dir.path());
  }
  Json before = read_json(dir / "run.lock");
  before["job"] = "17";
  write_file(dir / "run.lock", before.dump());
  EXPECT_EQ(uncounted(), 2);
  EXPECT_EQ(uncounted(), 2);
  Json after = read_json(dir / "run.lock");
  // The token has changed, so that a process that was cut off before does not take the
  // lock for its own.
  EXPECT_NE(after.at("token"), before.at("token"));
  after["token"] = before["token"];
  EXPECT_EQ(after, before);
  EXPECT_EQ(RunLock::acquire(dir.path()).attempt(), 2);
}

TEST(RunLock, ASecondWriterOnOneRunIsRefusedWithTheFirstOnesName) {
  const TestDirectory dir;
  const RunLock first = RunLock::acquire(dir.path());
  const std::string message =
      message_of<InputError>([&] { RunLock::acquire(dir.path()); });
  EXPECT_HAS(message, "another process writes this run");
  EXPECT_HAS(message, std::to_string(::getpid()));
  EXPECT_HAS(message, "attempt 1");
  EXPECT_HAS(message, "run.dir of its own");
  first.check();
}

TEST(RunLock, AKilledHolderOnThisHostIsTakenOverAtOnce) {
  const TestDirectory dir;
  const pid_t child = ::fork();
  if (child == 0) {
    RunLock* lock = new RunLock(RunLock::acquire(dir.path()));
    static_cast<void>(lock);  // killed: nothing is released
    ::_exit(0);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  const RunLock lock = RunLock::acquire(dir.path());
  EXPECT_EQ(lock.attempt(), 2);
  ASSERT_EQ(lock.notes().size(), 1U);
  EXPECT_HAS(lock.notes()[0], "run lock taken over from attempt 1");
  EXPECT_HAS(lock.notes()[0], "its process is gone");
}

TEST(RunLock, ADeadHolderThatNobodyHasReapedIsTakenOverAtOnce) {
  const TestDirectory dir;
  const pid_t child = ::fork();
  if (child == 0) {
    RunLock* lock = new RunLock(RunLock::acquire(dir.path()));
    static_cast<void>(lock);
    ::_exit(0);
  }
  siginfo_t info{};
  ASSERT_EQ(::waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOWAIT), 0);
  {
    const RunLock lock = RunLock::acquire(dir.path());
    EXPECT_EQ(lock.attempt(), 2);
    ASSERT_EQ(lock.notes().size(), 1U);
    EXPECT_HAS(lock.notes()[0], "its process is gone");
  }
  int status = 0;
  ::waitpid(child, &status, 0);
}

TEST(RunLock, AnotherProcessWithTheSameNumberIsNotTheHolder) {
  const TestDirectory dir;
  {
    const RunLock lock = RunLock::acquire(dir.path());
  }
  pretend(dir.path(), {{"process", 1}, {"process_start", 1}, {"token", "x"}});
  EXPECT_EQ(RunLock::acquire(dir.path()).attempt(), 2);
}

TEST(RunLock, AHolderOnAnotherHostLivesAsLongAsItsLease) {
  const TestDirectory dir;
  {
    const RunLock lock = RunLock::acquire(dir.path());
  }
  pretend(dir.path(), {{"host", "n7"}, {"boot", "b"}, {"token", "x"}, {"job", "123"}});
  const std::string message =
      message_of<InputError>([&] { RunLock::acquire(dir.path()); });
  EXPECT_HAS(message, "job 123 on host n7");
  EXPECT_HAS(message, "its lease was renewed");
  age_lease(dir.path(), 50);
  EXPECT_THROW(RunLock::acquire(dir.path()), InputError);
  age_lease(dir.path(), 100);
  const RunLock lock = RunLock::acquire(dir.path());
  EXPECT_EQ(lock.attempt(), 2);
  EXPECT_EQ(lock.notes().size(), 1U);
}

TEST(RunLock, ARestartOfTheSameJobWaitsForTheLeaseOfALostNode) {
  const TestDirectory dir;
  {
    const RunLock lock = RunLock::acquire(dir.path());
  }
  pretend(dir.path(), {{"host", "n7"}, {"boot", "b"}, {"token", "x"}, {"job", "123"}});
  age_lease(dir.path(), 58);
  ::setenv("SLURM_JOB_ID", "123", 1);
  const RunLock lock = RunLock::acquire(dir.path());
  ::unsetenv("SLURM_JOB_ID");
  EXPECT_EQ(lock.attempt(), 2);
  EXPECT_HAS(lock.notes().at(0), "waited for it");
}

TEST(RunLock, TheNextStartOfItsSupervisorTakesOverFromALostNodeAtOnce) {
  const TestDirectory dir;
  {
    const RunLock lock = RunLock::acquire(dir.path());
  }
  pretend(dir.path(), {{"host", "n7"},
                       {"boot", "b"},
                       {"token", "x"},
                       {"supervisor", "job-123"},
                       {"start", 4}});
  RunLockOptions options;
  EXPECT_THROW(RunLock::acquire(dir.path(), options), InputError);  // no supervisor
  options.supervisor = "job-124";
  options.start = 5;
  EXPECT_THROW(RunLock::acquire(dir.path(), options),
               InputError);  // another supervisor
  options.supervisor = "job-123";
  options.start = 4;
  EXPECT_THROW(RunLock::acquire(dir.path(), options),
               InputError);  // the same start, not a later one
  options.start = 5;
  const RunLock lock = RunLock::acquire(dir.path(), options);
  EXPECT_EQ(lock.attempt(), 2);
  EXPECT_HAS(lock.notes().at(0), "its supervisor starts this one in its place");
}

TEST(RunLock, TheLeaseIsRenewedWhileItIsHeld) {
  const TestDirectory dir;
  RunLockOptions options;
  options.renew_seconds = 0.02;
  const RunLock lock = RunLock::acquire(dir.path(), options);
  age_lease(dir.path(), 1000);
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  struct stat info{};
  ASSERT_EQ(::stat((dir / "run.lock").c_str(), &info), 0);
  EXPECT_LT(::time(nullptr) - info.st_mtim.tv_sec, 100);
}

TEST(RunLock, AHolderThatWasTakenOverFindsOutAndLeavesTheNewLockAlone) {
  const TestDirectory dir;
  {
    const RunLock lock = RunLock::acquire(dir.path());
    pretend(dir.path(), {{"token", "another"}, {"attempt", 2}});
    EXPECT_HAS(message_of<Error>([&] { lock.check(); }), "is now held by attempt 2");
  }
  EXPECT_EQ(read_json(dir / "run.lock").at("released"), false);
  EXPECT_EQ(read_json(dir / "run.lock").at("token"), "another");
}

// Starts `count` processes at once, and returns how many of them got the lock. None
// releases it before all have answered.
int winners_of(const fs::path& run, int count) {
  int said[2] = {}, hold[2] = {};
  EXPECT_EQ(::pipe(said) + ::pipe(hold), 0);
  std::vector<pid_t> children;
  for (int i = 0; i < count; ++i) {
    const pid_t child = ::fork();
    if (child == 0) {
      ::close(hold[1]);
      const auto tell = [&](char answer) {
        if (::write(said[1], &answer, 1) != 1) ::_exit(1);
      };
      try {
        const RunLock lock = RunLock::acquire(run);
        tell('w');
        char end = 0;
        if (::read(hold[0], &end, 1) != 0) ::_exit(1);
      } catch (const InputError&) {
        tell('l');
      } catch (...) {
        tell('?');
      }
      ::_exit(0);
    }
    children.push_back(child);
  }
  int winners = 0;
  for (int i = 0; i < count; ++i) {
    char answer = 0;
    EXPECT_EQ(::read(said[0], &answer, 1), 1);
    EXPECT_TRUE(answer == 'w' || answer == 'l') << answer;
    winners += answer == 'w' ? 1 : 0;
  }
  for (const int fd : {said[0], said[1], hold[0], hold[1]}) ::close(fd);
  for (const pid_t child : children) ::waitpid(child, nullptr, 0);
  return winners;
}

TEST(RunLock, OfManyThatStartAtOnceOneWins) {
  const TestDirectory dir;
  for (int round = 0; round < 60; ++round) {
    EXPECT_EQ(winners_of(dir.path(), 8), 1) << round;
    EXPECT_EQ(read_json(dir / "run.lock").at("attempt"), round + 1);
    if (round % 2 == 0) pretend(dir.path(), Json::object());  // killed, not released
  }
  int files = 0;
  for (const auto& entry : fs::directory_iterator(dir.path())) {
    EXPECT_EQ(entry.path().filename(), "run.lock");
    ++files;
  }
  EXPECT_EQ(files, 1);
}

TEST(RunLock, ATakeoverThatDiedHalfWayIsTakenOverToo) {
  const TestDirectory dir;
  {
    const RunLock lock = RunLock::acquire(dir.path());
  }
  const Json released = read_json(dir / "run.lock");
  // The process that claimed to be the next holder ended before it took the lock.
  pretend(dir.path(), {{"token", "gone"}, {"process_start", 1}});
  const std::string claim = "run.lock.next." + released.at("token").get<std::string>();
  fs::rename(dir / "run.lock", dir / claim);
  write_file(dir / "run.lock", released.dump());
  const RunLock lock = RunLock::acquire(dir.path());
  EXPECT_EQ(lock.attempt(), 2);
  EXPECT_FALSE(fs::exists(dir / claim));
}

TEST(RunLock, ATakeoverThatDoesNotEndIsNamedAndNotWaitedForForEver) {
  const TestDirectory dir;
  {
    const RunLock lock = RunLock::acquire(dir.path());
  }
  const Json released = read_json(dir / "run.lock");
  pretend(dir.path(), Json::object());  // this process, which lives, is the holder
  const std::string claim = "run.lock.next." + released.at("token").get<std::string>();
  fs::rename(dir / "run.lock", dir / claim);
  write_file(dir / "run.lock", released.dump());
  RunLockOptions options;
  options.lease_seconds = 0.1;
  EXPECT_HAS(message_of<TemporaryError>([&] { RunLock::acquire(dir.path(), options); }),
             "another process has been taking the place of attempt 1");
}

TEST(RunLock, ATokenThatLeavesTheDirectoryIsRefused) {
  const TestDirectory dir;
  {
    const RunLock lock = RunLock::acquire(dir / "run");
  }
  for (const std::string& token :
       {std::string("/../../other"), std::string("a b"), std::string(65, 'a')}) {
    pretend(dir / "run", {{"token", token}, {"process_start", 1}});
    EXPECT_HAS(message_of<InputError>([&] { RunLock::acquire(dir / "run"); }),
               "its token is no name");
  }
}

TEST(RunLock, ABrokenLockFileIsAClearError) {
  const TestDirectory dir;
  write_file(dir / "run.lock", "{");
  EXPECT_HAS(message_of<InputError>([&] { RunLock::acquire(dir.path()); }), "run.lock");
}

}  // namespace
}  // namespace longhaul::run
