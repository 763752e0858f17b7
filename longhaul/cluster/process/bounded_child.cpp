#include "longhaul/cluster/process/bounded_child.h"

#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cmath>
#include <csignal>
#include <ctime>

#include "longhaul/base/file.h"
#include "longhaul/base/refused.h"
#include "longhaul/system/stopwatch.h"

namespace longhaul::cluster {
namespace {

/// A killed child that is not gone within this time waits in the kernel.
constexpr double kDeathSeconds = 0.5;

void collect(int fd, double deadline_seconds, size_t max_bytes, BoundedAnswer& answer) {
  std::array<char, 4096> bytes{};
  for (const system::Stopwatch watch; answer.text.size() < max_bytes;) {
    const double left = deadline_seconds - watch.seconds();
    if (left <= 0.0) return;
    pollfd one{fd, POLLIN, 0};
    if (::poll(&one, 1, static_cast<int>(std::ceil(1000.0 * left))) <= 0) continue;
    const ssize_t count = ::read(fd, bytes.data(), bytes.size());
    if (count > 0) answer.text.append(bytes.data(), static_cast<size_t>(count));
    if (count == 0) {
      answer.in_time = true;
      return;
    }
  }
}

/// Returns the status of the child, or 0 if it does not end.
int wait_for_death(pid_t child) {
  int status = 0;
  for (const system::Stopwatch watch; watch.seconds() < kDeathSeconds;) {
    const pid_t got = ::waitpid(child, &status, WNOHANG);
    if (got == child || (got < 0 && errno != EINTR)) return got == child ? status : 0;
    const timespec pause{0, 200000};
    ::nanosleep(&pause, nullptr);
  }
  return 0;
}

}  // namespace

BoundedAnswer run_in_bounded_child(
    const std::function<void(const std::function<void(std::string_view)>& write)>& work,
    double deadline_seconds, size_t max_bytes) {
  Pipe pipe = make_pipe("cluster");
  const pid_t parent = ::getpid();
  const pid_t child = ::fork();
  if (child < 0) throw refused("cluster", "process", errno);
  if (child == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != parent) ::_exit(1);
    int exit_code = 0;
    try {
      work([&](std::string_view text) {
        if (!write_descriptor(pipe.write.get(), text)) ::_exit(1);
      });
    } catch (...) {
      exit_code = 1;
    }
    ::_exit(exit_code);
  }
  pipe.write.reset();
  BoundedAnswer answer;
  collect(pipe.read.get(), deadline_seconds, max_bytes, answer);
  // A child that has closed the pipe in time may still be ended by a signal, such as that
  // of a crash.
  if (!answer.in_time) ::kill(child, SIGKILL);
  int status = wait_for_death(child);
  if (answer.in_time && WIFSIGNALED(status)) answer.signal = WTERMSIG(status);
  return answer;
}

}  // namespace longhaul::cluster
