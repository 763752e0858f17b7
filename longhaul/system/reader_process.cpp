#include "longhaul/system/reader_process.h"

#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <mutex>
#include <utility>

#include "longhaul/base/error.h"
#include "longhaul/base/failure.h"
#include "longhaul/base/file.h"
#include "longhaul/base/refused.h"
#include "longhaul/system/isolate_child.h"
#include "longhaul/system/messages.h"
#include "longhaul/system/signals.h"

namespace longhaul::system {
namespace {

constexpr uint64_t kMaxRequestBytes = uint64_t{1} << 20;

[[noreturn]] void serve(int fd,
                        const std::function<std::string(const std::string&)>& work,
                        const ChildLimits& limits) {
  fd = isolate_child(fd);
  // The process ends when the other end of the socket closes. A signal that is meant for
  // the job does not end it.
  ignore_signals_until_exit();
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGCHLD, SIG_DFL);
  std::string what;
  std::string request;
  while (receive_text(fd, what, kMaxRequestBytes) &&
         receive_text(fd, request, kMaxRequestBytes)) {
    const std::string reply = reply_of([&] {
      return run_in_limited_child(what, [&] { return work(request); }, limits);
    });
    if (!send_text(fd, reply)) break;
  }
  ::_exit(0);
}

}  // namespace

struct ReaderProcess::State {
  Descriptor fd;
  pid_t child = -1;
  uint64_t answer_limit = 0;
  std::mutex mutex;
};

ReaderProcess::ReaderProcess(std::function<std::string(const std::string&)> work,
                             const ChildLimits& limits)
    : state_(std::make_unique<State>()) {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) {
    throw refused("process", "pair of sockets", errno);
  }
  state_->answer_limit = limits.answer_bytes + 1;
  state_->fd = Descriptor(ends[0]);
  const Descriptor of_child(ends[1]);
  state_->child = ::fork();
  if (state_->child == 0) serve(of_child.get(), work, limits);
  if (state_->child < 0) throw refused("process", "process", errno);
}

ReaderProcess::~ReaderProcess() {
  state_->fd.reset();
  ::kill(state_->child, SIGKILL);  // a child of its own that still reads dies with it
  while (::waitpid(state_->child, nullptr, 0) < 0 && errno == EINTR) {
  }
}

std::string ReaderProcess::ask(const std::string& what, const std::string& request) {
  const std::lock_guard lock(state_->mutex);
  std::string reply;
  const int fd = state_->fd.get();
  if (!send_text(fd, what) || !send_text(fd, request) ||
      !receive_text(fd, reply, state_->answer_limit) || reply.empty()) {
    fail_temporary("process",
                   "{}: the process that reads it is gone; start the command again",
                   what);
  }
  return open_reply(std::move(reply));
}

}  // namespace longhaul::system
