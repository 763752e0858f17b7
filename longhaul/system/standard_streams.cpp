#include "longhaul/system/standard_streams.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <mutex>

#include "longhaul/system/lossy_writer.h"

namespace longhaul::system {
namespace {

/// Seconds for which a write waits for a reader that takes nothing. They are few, since a
/// run that is told to end may soon be killed.
constexpr double kReaderSeconds = 1.0;

/// One of the two streams that are written, stdout and stderr. The C library's streams
/// point here for as long as the process lives.
struct Written {
  int fd;
  std::atomic<bool> drops;     ///< what cannot be written is dropped
  LossyWriter lossy;           ///< writes for a stream that drops
  std::atomic<int> error = 0;  ///< errno of the first failure
};
Written output{STDOUT_FILENO, false, {STDOUT_FILENO, kReaderSeconds}};
Written errors{STDERR_FILENO, true, {STDERR_FILENO, kReaderSeconds}};
/// The two streams may lead into the same pipe, whose room is asked for before each
/// write.
std::mutex one_at_a_time;

void note_error(Written& stream, int error) {
  int none = 0;
  stream.error.compare_exchange_strong(none, error);
}

/// Writes all bytes, in the form that fopencookie() wants. Waits if the descriptor was
/// made non-blocking by a program that shares it.
ssize_t write_all(void* cookie, const char* bytes, size_t size) {
  auto& stream = *static_cast<Written*>(cookie);
  if (stream.drops) {
    const std::lock_guard lock(one_at_a_time);
    if (const int error = stream.lossy.write({bytes, size})) note_error(stream, error);
    return static_cast<ssize_t>(size);
  }
  size_t written = 0;
  while (written < size) {
    const ssize_t n = ::write(stream.fd, bytes + written, size - written);
    if (n >= 0) {
      written += static_cast<size_t>(n);
    } else if (errno == EAGAIN) {
      pollfd room{stream.fd, POLLOUT, 0};
      ::poll(&room, 1, -1);
    } else if (errno != EINTR) {
      const int failed = errno;
      note_error(stream, failed);
      errno = failed;
      break;
    }
  }
  return static_cast<ssize_t>(written);
}

/// Replaces a stream of the C library, which allows assignments to `stdout` and `stderr`.
void replace(FILE*& stream, Written& by) {
  cookie_io_functions_t functions{};
  functions.write = write_all;
  FILE* const made = ::fopencookie(&by, "w", functions);
  if (made == nullptr) return;  // without memory the stream stays as it was
  // Libraries such as Open MPI ask for the stream's descriptor and write there.
  made->_fileno = by.fd;
  const int mode = by.fd == STDERR_FILENO ? _IONBF : ::isatty(by.fd) ? _IOLBF : _IOFBF;
  std::setvbuf(made, nullptr, mode, BUFSIZ);
  std::fflush(stream);
  stream = made;
}

}  // namespace

void guard_standard_streams() {
  for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; ++fd) {
    // open() returns the lowest free number, which is `fd`.
    if (::fcntl(fd, F_GETFD) < 0) static_cast<void>(::open("/dev/null", O_RDWR));
  }
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGXFSZ, SIG_IGN);
  replace(stdout, output);
  replace(stderr, errors);
}

void let_output_fail() { output.drops = true; }

int output_error() { return output.error; }

bool output_reader_has_gone() {
  if (output.error == EPIPE) return true;
  struct stat info{};
  return output.error == EIO && ::fstat(output.fd, &info) == 0 && S_ISCHR(info.st_mode);
}

}  // namespace longhaul::system
