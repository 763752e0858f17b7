#include "longhaul/cluster/process/output_relay.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <climits>

namespace longhaul::cluster {
namespace {

/// Size of the pipe, so that ranks do not wait while a supervisor stands still for a
/// while.
constexpr int kPipeBytes = 1 << 20;
/// The most pieces of PIPE_BUF bytes that one call copies: a launcher may write without
/// end.
constexpr int kPieces = 256;
/// Seconds for which a reader may take nothing before output for it is dropped.
constexpr double kStuckSeconds = 1.0;

bool output_has_a_reader() {
  struct stat info{};
  return ::fstat(STDOUT_FILENO, &info) == 0 &&
         (S_ISFIFO(info.st_mode) || S_ISSOCK(info.st_mode));
}

}  // namespace

OutputRelay::OutputRelay() : output_(STDOUT_FILENO, 0.0) {
  if (!output_has_a_reader()) return;
  pipe_ = make_pipe("launch");
  ::fcntl(pipe_.read.get(), F_SETFL, O_NONBLOCK);
  // The kernel may refuse an unprivileged user more pages. Then the pipe keeps its size.
  ::fcntl(pipe_.read.get(), F_SETPIPE_SZ, kPipeBytes);
}

/// Reads once from the launcher's pipe; returns whether something came.
bool OutputRelay::fill() {
  std::array<char, PIPE_BUF> buffer{};
  const ssize_t got = ::read(pipe_.read.get(), buffer.data(), buffer.size());
  if (got <= 0) return got < 0 && errno == EINTR;
  if (!unread_) rest_.assign(buffer.data(), static_cast<size_t>(got));
  return true;
}

/// Writes the rest if that needs no waiting, and drops it if the reader has taken nothing
/// for too long; returns whether nothing is left.
bool OutputRelay::put() {
  if (rest_.empty()) return true;
  if (output_.has_room()) {
    stuck_.reset();
  } else if (!stuck_) {
    stuck_.emplace();
  }
  if (stuck_ && stuck_->seconds() < kStuckSeconds) return false;
  unread_ = output_.write(rest_) != 0;
  rest_.clear();
  return true;
}

void OutputRelay::copy() {
  if (!pipe_.read.is_open()) return;
  for (int piece = 0; piece < kPieces && put() && fill(); ++piece) {
  }
}

void OutputRelay::finish(double patience_seconds) {
  if (!pipe_.read.is_open()) return;
  // A process that the launcher has left behind may go on writing. The relay does not
  // wait for its output.
  for (int piece = 0; piece < kPipeBytes / PIPE_BUF; ++piece) {
    for (const system::Stopwatch waited; !put();) {
      if (waited.seconds() > patience_seconds) return;
      pollfd room{STDOUT_FILENO, POLLOUT, 0};
      ::poll(&room, 1, 50);
    }
    if (!fill()) return;
  }
  put();
}

}  // namespace longhaul::cluster
