#include "longhaul/cluster/process/stacks.h"

#include <fmt/format.h>
#include <sys/ptrace.h>
#include <sys/wait.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <ctime>
#include <fstream>
#include <functional>
#include <iterator>
#include <memory>
#include <string_view>
#include <vector>

#include "longhaul/base/error.h"
#include "longhaul/base/file.h"
#include "longhaul/base/process.h"
#include "longhaul/cluster/process/bounded_child.h"
#include "longhaul/cluster/process/unwind.h"
#include "longhaul/system/stopwatch.h"

namespace longhaul::cluster {
namespace {

constexpr size_t kMaxThreads = 256;
/// A thread that does not stop within this time sits in the kernel.
constexpr double kStopSeconds = 0.5;
constexpr unsigned kNoSignal = 0;

/// Returns a small file of /proc without its last line break; empty if it cannot be read.
std::string proc_text(const std::string& path) {
  std::ifstream file(path);
  std::string text((std::istreambuf_iterator<char>(file)), {});
  while (!text.empty() && text.back() == '\n') text.pop_back();
  return text;
}

std::vector<pid_t> threads_of(pid_t pid) {
  std::vector<pid_t> threads;
  for (const fs::path& thread : paths_in(fmt::format("/proc/{}/task", pid))) {
    threads.push_back(std::atoi(thread.filename().c_str()));
  }
  std::ranges::sort(threads);
  return threads;
}

/// Says in words what state a thread is in.
std::string state_words(const std::string& folder) {
  const auto fields = stat_fields(folder);
  if (fields.empty()) return "gone";
  constexpr std::array<std::pair<char, const char*>, 6> kWords = {
      {{'R', "running"},
       {'S', "sleeping"},
       {'D', "in an uninterruptible wait"},
       {'T', "stopped by a signal"},
       {'t', "held by a debugger"},
       {'Z', "ended, but its parent has not waited for it"}}};
  for (const auto& [letter, words] : kWords) {
    if (fields.front().front() == letter) return words;
  }
  return fmt::format("in state {}", fields.front());
}

/// Returns one line of what the kernel says of a thread.
std::string kernel_view(pid_t pid, pid_t thread) {
  const std::string folder = fmt::format("/proc/{}/task/{}", pid, thread);
  const std::string place = proc_text(folder + "/wchan");
  const std::string call = proc_text(folder + "/syscall");
  std::string line = fmt::format("thread {} {}: {}", thread, proc_text(folder + "/comm"),
                                 state_words(folder));
  if (!place.empty() && place != "0") line += ", in " + place;
  // The file holds "running", or the number of a system call and its arguments.
  if (!call.empty() && call != "running" && call[0] != '-') {
    line += ", system call " + call.substr(0, call.find(' '));
  }
  return line + "\n";
}

/// Returns the thread's stack in the kernel, if it may be read.
std::string kernel_stack(pid_t pid, pid_t thread) {
  std::ifstream file(fmt::format("/proc/{}/task/{}/stack", pid, thread));
  std::string text;
  for (std::string line; std::getline(file, line);) {
    // A line reads "[<0>] futex_wait_queue+0x60/0x90".
    const size_t name = line.find("] ");
    if (name != std::string::npos) line.erase(0, name + 2);
    text += "    kernel: " + line + "\n";
  }
  return text;
}

long trace(int request, pid_t thread, uintptr_t data) {
  return ::ptrace(static_cast<__ptrace_request>(request), thread, nullptr, data);
}

enum class Stop { Stopped, Refused, Late, Gone };

/// Stops one thread. `signal` receives the signal that the thread was about to get, which
/// must be delivered when the thread goes on.
Stop stop_thread(pid_t thread, unsigned& signal) {
  signal = kNoSignal;
  if (trace(PTRACE_SEIZE, thread, 0) != 0) {
    return errno == ESRCH ? Stop::Gone : Stop::Refused;
  }
  trace(PTRACE_INTERRUPT, thread, 0);
  for (const system::Stopwatch watch; watch.seconds() < kStopSeconds;) {
    int status = 0;
    const pid_t got = ::waitpid(thread, &status, __WALL | WNOHANG);
    if (got < 0 && errno != EINTR) return Stop::Gone;
    if (got == thread) {
      if (!WIFSTOPPED(status)) return Stop::Gone;
      if (status >> 16 != PTRACE_EVENT_STOP) {
        signal = static_cast<unsigned>(WSTOPSIG(status));
      }
      return Stop::Stopped;
    }
    const timespec pause{0, 200000};
    ::nanosleep(&pause, nullptr);
  }
  return Stop::Late;
}

std::string how_to_allow() {
  const std::string scope = proc_text("/proc/sys/kernel/yama/ptrace_scope");
  if (!scope.empty() && scope != "0") {
    return fmt::format("kernel.yama.ptrace_scope is {}: set it to 0 on the nodes", scope);
  }
  return "the process belongs to another user, or the container lacks CAP_SYS_PTRACE";
}

/// Describes all threads. Writes what it finds of each thread at once, since a later
/// thread may hang.
void trace_threads(pid_t pid, const std::function<void(std::string_view)>& write) {
  const std::vector<pid_t> threads = threads_of(pid);
  write(fmt::format("process {} ({}), {} {}\n", pid,
                    proc_text(fmt::format("/proc/{}/comm", pid)), threads.size(),
                    threads.size() == 1 ? "thread" : "threads"));
  // The kernel's view of all threads is taken before any thread is stopped.
  std::map<pid_t, std::string> views;
  for (const pid_t thread : threads) views[thread] = kernel_view(pid, thread);
  std::unique_ptr<Unwinder> unwinder;
  if (Unwinder::is_built()) unwinder = std::make_unique<Unwinder>(pid);
  size_t count = 0;
  bool refused = false;
  for (const pid_t thread : threads) {
    if (++count > kMaxThreads) {
      write(fmt::format("({} more threads)\n", threads.size() - kMaxThreads));
      break;
    }
    std::string text = views[thread];
    unsigned signal = kNoSignal;
    const Stop stop = unwinder && !refused ? stop_thread(thread, signal) : Stop::Refused;
    if (stop == Stop::Stopped) {
      text += unwinder->frames(thread);
      trace(PTRACE_DETACH, thread, signal);
    } else if (stop == Stop::Late) {
      text += "    (the thread does not stop: it waits in the kernel)\n";
      text += kernel_stack(pid, thread);
    } else if (stop == Stop::Refused) {
      refused = true;
      text += kernel_stack(pid, thread);
    }
    write(text);
  }
  if (!unwinder) {
    write("(no function names: this build has no libdw)\n");
  } else if (refused) {
    write(
        fmt::format("(no function names: tracing is not allowed; {})\n", how_to_allow()));
  }
}

}  // namespace

std::string stack_traces(pid_t pid, double deadline_seconds) {
  if (pid <= 0 || !fs::exists(fmt::format("/proc/{}", pid))) {
    return fmt::format("process {} is gone\n", pid);
  }
  BoundedAnswer answer;
  try {
    // The kernel releases all threads that the child holds when the child dies.
    answer = run_in_bounded_child([pid](const auto& write) { trace_threads(pid, write); },
                                  deadline_seconds);
  } catch (const TemporaryError& error) {
    return fmt::format("(no stacks: {})\n", error.what());
  }
  if (!answer.in_time) {
    answer.text += fmt::format("(tracing was ended after {:.1f} s)\n", deadline_seconds);
  }
  if (answer.signal != 0) {
    answer.text +=
        fmt::format("(the tracing process died of signal {})\n", answer.signal);
  }
  return answer.text;
}

std::string describe_stacks(const std::map<int, std::string>& stacks) {
  std::string text;
  for (const auto& [rank, stack] : stacks) {
    text += fmt::format("\nrank {}\n{}\n", rank, stack);
  }
  return text;
}

}  // namespace longhaul::cluster
