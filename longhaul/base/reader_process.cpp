#include "longhaul/base/reader_process.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <mutex>
#include <utility>

#include "longhaul/base/error.h"

namespace longhaul {
namespace {

// The first byte of a message that carries an answer; else it is an ErrorKind's.
constexpr char kAnswer = 'A';
constexpr uint64_t kMaxRequestBytes = uint64_t{1} << 20;

bool send_all(int fd, const char* data, size_t size) {
  while (size > 0) {
    const ssize_t sent = ::send(fd, data, size, MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent <= 0) return false;
    data += sent;
    size -= static_cast<size_t>(sent);
  }
  return true;
}

bool receive_all(int fd, char* data, size_t size) {
  while (size > 0) {
    const ssize_t got = ::recv(fd, data, size, 0);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return false;
    data += got;
    size -= static_cast<size_t>(got);
  }
  return true;
}

bool send_text(int fd, const std::string& text) {
  const uint64_t size = text.size();
  return send_all(fd, reinterpret_cast<const char*>(&size), sizeof(size)) &&
         send_all(fd, text.data(), text.size());
}

bool receive_text(int fd, std::string& text, uint64_t limit) {
  uint64_t size = 0;
  if (!receive_all(fd, reinterpret_cast<char*>(&size), sizeof(size)) || size > limit) {
    return false;
  }
  text.resize(size);
  return receive_all(fd, text.data(), text.size());
}

char kind_letter(ErrorKind kind) {
  return static_cast<char>('0' + static_cast<int>(kind));
}

/// "kind, area, newline, message".
std::string error_message(const Error& error) {
  const std::string text = error.what();
  const size_t prefix =
      error.area().size() + 3;  // "[area] ", put there again by the other
  return kind_letter(error.kind()) + error.area() + '\n' +
         text.substr(std::min(prefix, text.size()));
}

std::string answer_to(const std::string& what, const std::string& request,
                      const std::function<std::string(const std::string&)>& work,
                      const ChildLimits& limits) {
  try {
    std::string answer =
        run_in_limited_child(what, [&] { return work(request); }, limits);
    answer.insert(answer.begin(), kAnswer);
    return answer;
  } catch (const Error& error) {
    return error_message(error);
  } catch (const std::exception& error) {
    return error_message(TemporaryError("process", error.what()));
  }
}

[[noreturn]] void serve(int fd,
                        const std::function<std::string(const std::string&)>& work,
                        const ChildLimits& limits) {
  if (fd != 3) {
    ::dup2(fd, 3);
    fd = 3;
  }
  ::close_range(4, ~0U, 0);
  const int null = ::open("/dev/null", O_RDWR);
  for (int standard = 0; standard <= 2; ++standard) ::dup2(null, standard);
  if (null > 3) ::close(null);
  ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
  // It ends when the other end of the socket closes, not by a signal meant for the job.
  for (const int number : {SIGINT, SIGTERM, SIGUSR1, SIGUSR2, SIGHUP, SIGPIPE}) {
    std::signal(number, SIG_IGN);
  }
  std::signal(SIGCHLD, SIG_DFL);
  std::string what;
  std::string request;
  while (receive_text(fd, what, kMaxRequestBytes) &&
         receive_text(fd, request, kMaxRequestBytes)) {
    if (!send_text(fd, answer_to(what, request, work, limits))) break;
  }
  ::_exit(0);
}

[[noreturn]] void throw_reply(const std::string& reply) {
  const size_t line = reply.find('\n');
  const std::string area = reply.substr(1, line - 1);
  const std::string text = line == std::string::npos ? reply : reply.substr(line + 1);
  if (reply.front() == kind_letter(ErrorKind::Input)) throw InputError(area, text);
  if (reply.front() == kind_letter(ErrorKind::Temporary))
    throw TemporaryError(area, text);
  throw Error(ErrorKind::Internal, area, text);
}

}  // namespace

struct ReaderProcess::State {
  int fd = -1;
  pid_t child = -1;
  uint64_t answer_limit = 0;
  std::mutex mutex;
};

ReaderProcess::ReaderProcess(std::function<std::string(const std::string&)> work,
                             const ChildLimits& limits)
    : state_(std::make_unique<State>()) {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) {
    throw TemporaryError("process",
                         fmt::format("socketpair failed: {}", std::strerror(errno)));
  }
  state_->answer_limit = limits.answer_bytes + 1;
  state_->child = ::fork();
  if (state_->child == 0) serve(ends[1], work, limits);
  ::close(ends[1]);
  if (state_->child < 0) {
    ::close(ends[0]);
    throw TemporaryError("process", fmt::format("fork failed: {}", std::strerror(errno)));
  }
  state_->fd = ends[0];
}

ReaderProcess::~ReaderProcess() {
  ::close(state_->fd);
  ::kill(state_->child, SIGKILL);  // a child of its own that still reads dies with it
  while (::waitpid(state_->child, nullptr, 0) < 0 && errno == EINTR) {
  }
}

std::string ReaderProcess::ask(const std::string& what, const std::string& request) {
  const std::lock_guard lock(state_->mutex);
  std::string reply;
  if (!send_text(state_->fd, what) || !send_text(state_->fd, request) ||
      !receive_text(state_->fd, reply, state_->answer_limit) || reply.empty()) {
    throw TemporaryError(
        "process",
        fmt::format("{}: the process that reads it is gone; start again", what));
  }
  if (reply.front() != kAnswer) throw_reply(reply);
  reply.erase(0, 1);
  return reply;
}

}  // namespace longhaul
