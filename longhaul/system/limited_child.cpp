#include "longhaul/system/limited_child.h"

#include <fmt/format.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <new>
#include <utility>

#include "longhaul/base/error.h"
#include "longhaul/base/failure.h"
#include "longhaul/base/file.h"
#include "longhaul/base/refused.h"
#include "longhaul/system/isolate_child.h"

namespace longhaul::system {
namespace {

// Lowers a limit; never raises one.
void limit(int resource, uint64_t value) {
  rlimit current{};
  if (::getrlimit(static_cast<__rlimit_resource>(resource), &current) != 0) return;
  const auto wanted = static_cast<rlim_t>(value);
  current.rlim_cur = std::min(current.rlim_cur, wanted);
  current.rlim_max = std::min(current.rlim_max, wanted);
  ::setrlimit(static_cast<__rlimit_resource>(resource), &current);
}

[[noreturn]] void be_child(int fd, const std::string& what,
                           const std::function<std::string()>& work,
                           const ChildLimits& limits, uint64_t data_limit) {
  fd = isolate_child(fd);
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  limit(RLIMIT_CORE, 0);
  limit(RLIMIT_FSIZE, 0);
  limit(RLIMIT_NPROC, 0);
  limit(RLIMIT_NOFILE, 64);
  limit(RLIMIT_CPU, limits.cpu_seconds);
  limit(RLIMIT_DATA, data_limit);
  std::string answer;
  const auto failure = Failure::of([&] {
    try {
      answer = work();
    } catch (const std::bad_alloc&) {
      fail_input("memory",
                 "{}: reading the file takes more memory than the reader's limit", what);
    }
  });
  // The answer is not copied behind its mark, because the answer may fill the memory.
  const std::string mark =
      failure ? Failure::to_text(failure) : std::string(1, kAnswerMark);
  ::_exit(write_descriptor(fd, mark) && write_descriptor(fd, answer) ? 0 : 2);
}

std::string read_answer(int fd, uint64_t limit, bool& too_long) {
  std::string answer;
  std::string buffer(size_t{1} << 20, '\0');
  while (true) {
    const ssize_t got = ::read(fd, buffer.data(), buffer.size());
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return answer;
    if (answer.size() + static_cast<size_t>(got) > limit) {
      too_long = true;
      return {};
    }
    answer.append(buffer.data(), static_cast<size_t>(got));
  }
}

std::string how_it_ended(int status) {
  if (!WIFSIGNALED(status)) return fmt::format("exit status {}", WEXITSTATUS(status));
  const int number = WTERMSIG(status);
  if (number == SIGXCPU || number == SIGKILL) {
    return fmt::format("signal {}: the process took too much processor time or memory",
                       number);
  }
  return fmt::format("signal {}", number);
}

}  // namespace

std::string run_in_limited_child(const std::string& what,
                                 const std::function<std::string()>& work,
                                 const ChildLimits& limits) {
  Pipe pipe = make_pipe("process");
  // The writable private memory of this process, as RLIMIT_DATA counts it.
  const int64_t now = number_behind("/proc/self/status", "VmData:").value_or(0);
  const uint64_t data_limit = uint64_t(now) + limits.memory_bytes;
  const pid_t child = ::fork();
  if (child == 0) be_child(pipe.write.get(), what, work, limits, data_limit);
  if (child < 0) throw refused("process", "process", errno);
  pipe.write.reset();
  bool too_long = false;
  std::string answer = read_answer(pipe.read.get(), limits.answer_bytes, too_long);
  if (too_long) ::kill(child, SIGKILL);
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  if (too_long) {
    fail_input("process", "{}: the reader's answer has more than {} bytes", what,
               limits.answer_bytes);
  }
  if (answer.empty() || !WIFEXITED(status) || WEXITSTATUS(status) != 0) {
    fail_input("process",
               "{}: the process that read it ended ({}); the file is damaged, hostile or "
               "too large",
               what, how_it_ended(status));
  }
  return open_reply(std::move(answer));
}

}  // namespace longhaul::system
