#include "longhaul/system/lossy_writer.h"

#include <fmt/format.h>
#include <limits.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <string>

#include "longhaul/base/text.h"
#include "longhaul/system/stopwatch.h"

namespace longhaul::system {
namespace {

/// Returns how many bytes can be written without waiting once a descriptor has room:
/// PIPE_BUF for a pipe, and a few for a terminal.
size_t piece_of(int fd) { return ::isatty(fd) == 1 ? 64 : PIPE_BUF; }

}  // namespace

bool LossyWriter::waits_for_room(double seconds) const {
  const Stopwatch watch;
  while (true) {
    const double left = std::max(0.0, seconds - watch.seconds());
    pollfd room{fd_, POLLOUT, 0};
    const int ready = ::poll(&room, 1, static_cast<int>(1000.0 * left));
    // If poll() cannot ask the descriptor, the write itself will tell what is wrong.
    if (ready > 0 || (ready < 0 && errno != EINTR)) return true;
    if (ready == 0 || left <= 0.0) return false;
  }
}

int LossyWriter::put(std::string_view bytes) {
  const size_t piece = piece_of(fd_);
  while (!bytes.empty()) {
    if (!waits_for_room(stalled_ ? 0.0 : patience_seconds_)) {
      stalled_ = true;
      lost_lines_ += std::max<int64_t>(1, std::ranges::count(bytes, '\n'));
      return 0;
    }
    const ssize_t n = ::write(fd_, bytes.data(), std::min(piece, bytes.size()));
    if (n > 0) {
      in_line_ = bytes[static_cast<size_t>(n) - 1] != '\n';
      bytes.remove_prefix(static_cast<size_t>(n));
    } else if (n < 0 && errno != EINTR && errno != EAGAIN) {
      return errno;
    }
  }
  return 0;
}

int LossyWriter::write(std::string_view bytes) {
  if (stalled_ && has_room()) {
    const std::string notice = fmt::format(
        "{}warning: {} of this output {} missing here, since nobody read it\n",
        in_line_ ? "\n" : "", counted(lost_lines_, "line"),
        lost_lines_ == 1 ? "is" : "are");
    stalled_ = false;
    lost_lines_ = 0;
    if (const int error = put(notice)) return error;
  }
  return put(bytes);
}

}  // namespace longhaul::system
