#include "longhaul/cluster/process/stacks.h"

#include <gtest/gtest.h>
#include <pthread.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <fstream>
#include <functional>
#include <thread>

#include "longhaul/cluster/process/unwind.h"
#include "longhaul/system/stopwatch.h"
#include "tests/support/scratch_directory.h"

// Functions that a trace is searched for. Each does something after its call, so that no
// call is a tail call that leaves no frame.
extern "C" {
volatile int stacks_test_done = 0;
[[gnu::noinline]] void stacks_test_waits_for_ever() {
  while (stacks_test_done == 0) ::pause();
  stacks_test_done = 2;
}
[[gnu::noinline]] void stacks_test_calls_it() {
  stacks_test_waits_for_ever();
  stacks_test_done = 3;
}
[[gnu::noinline]] void stacks_test_spins_for_ever() {
  while (stacks_test_done == 0) {
  }
  stacks_test_done = 4;
}
}

namespace longhaul::cluster {
namespace {

/// A child process that runs `work` and is killed at the end.
class Child {
 public:
  explicit Child(const std::function<void()>& work) {
    pid_ = ::fork();
    if (pid_ == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      work();
      ::_exit(0);
    }
  }
  ~Child() {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;
  pid_t pid() const { return pid_; }

  /// Returns the letter of the process's state: 'S' for example.
  char state() const {
    std::ifstream file("/proc/" + std::to_string(pid_) + "/stat");
    const std::string text((std::istreambuf_iterator<char>(file)), {});
    return text.empty() ? '?' : text.at(text.rfind(')') + 2);
  }
  void wait_until(char wanted) const {
    for (const system::Stopwatch watch; state() != wanted && watch.seconds() < 5.0;) {
      ::usleep(1000);
    }
    EXPECT_EQ(state(), wanted);
  }

 private:
  pid_t pid_ = -1;
};

class Stacks : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!Unwinder::is_built()) GTEST_SKIP() << "a build without libdw";
  }
};

TEST_F(Stacks, NamesTheFunctionsOfAChildThatHangs) {
  const Child child(stacks_test_calls_it);
  child.wait_until('S');
  const std::string text = stack_traces(child.pid());
  EXPECT_HAS(text,
             "process " + std::to_string(child.pid()) + " (cluster_test), 1 thread");
  EXPECT_HAS(text, ": sleeping");
  const size_t inner = text.find("stacks_test_waits_for_ever (cluster_test)");
  const size_t outer = text.find("stacks_test_calls_it (cluster_test)");
  ASSERT_NE(inner, std::string::npos) << text;
  ASSERT_NE(outer, std::string::npos) << text;
  EXPECT_LT(inner, outer) << "the innermost comes first";
  EXPECT_HAS(text, "main (cluster_test)");
  child.wait_until('S');
}

TEST_F(Stacks, NamesWhatRunsAndLetsItRunOn) {
  const Child child(stacks_test_spins_for_ever);
  std::string text;
  // The child runs before it gets to this function.
  for (const system::Stopwatch watch; watch.seconds() < 5.0;) {
    text = stack_traces(child.pid());
    if (text.find("stacks_test_spins_for_ever") != std::string::npos) break;
  }
  EXPECT_HAS(text, "stacks_test_spins_for_ever");
  child.wait_until('R');
}

TEST_F(Stacks, LeavesAStoppedProcessStopped) {
  const Child child(stacks_test_calls_it);
  child.wait_until('S');
  ::kill(child.pid(), SIGSTOP);
  child.wait_until('T');
  const std::string text = stack_traces(child.pid());
  EXPECT_HAS(text, "stopped by a signal");
  EXPECT_HAS(text, "stacks_test_calls_it");
  child.wait_until('T');
  ::kill(child.pid(), SIGCONT);
  child.wait_until('S');
}

TEST_F(Stacks, ShowsEveryThread) {
  const Child child([] {
    std::thread other([] {
      ::pthread_setname_np(::pthread_self(), "a worker");
      stacks_test_waits_for_ever();
    });
    stacks_test_calls_it();
    other.join();
  });
  child.wait_until('S');
  std::string text;
  for (const system::Stopwatch watch; watch.seconds() < 5.0;) {
    text = stack_traces(child.pid());
    if (text.find("a worker: sleeping") != std::string::npos) break;
  }
  EXPECT_HAS(text, "2 threads");
  EXPECT_HAS(text, "a worker: sleeping");
  size_t count = 0;
  for (size_t at = 0; (at = text.find("waits_for_ever (", at)) != std::string::npos;
       ++at) {
    ++count;
  }
  EXPECT_EQ(count, 2U) << text;
}

TEST_F(Stacks, FallsBackOnTheKernelsViewWhereTracingIsRefused) {
  const Child child([] {
    // The child lets its parent trace it, so that the tracer under test is refused: a
    // process has one tracer at most.
    ::ptrace(PTRACE_TRACEME, 0, nullptr, nullptr);
    stacks_test_calls_it();
  });
  child.wait_until('S');
  const std::string text = stack_traces(child.pid());
  EXPECT_HAS(text, "thread " + std::to_string(child.pid()) + " cluster_test: sleeping");
  EXPECT_HAS(text, "tracing is not allowed");
  EXPECT_EQ(text.find("stacks_test_calls_it"), std::string::npos);
}

TEST_F(Stacks, EndsAtItsDeadlineWithWhatItHas) {
  const Child child(stacks_test_calls_it);
  child.wait_until('S');
  const system::Stopwatch watch;
  const std::string text = stack_traces(child.pid(), 0.0);
  EXPECT_HAS(text, "(tracing was ended after 0.0 s)");
  EXPECT_LT(watch.seconds(), 1.0);
  child.wait_until('S');
}

TEST_F(Stacks, SaysThatAProcessIsGone) {
  pid_t pid = 0;
  {
    const Child child([] {});
    pid = child.pid();
  }
  EXPECT_EQ(stack_traces(pid), "process " + std::to_string(pid) + " is gone\n");
  EXPECT_EQ(stack_traces(-1), "process -1 is gone\n");
}

}  // namespace
}  // namespace longhaul::cluster
