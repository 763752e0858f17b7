#include "longhaul/cluster/process/background_child.h"

#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>

namespace longhaul::cluster {

BackgroundChild::BackgroundChild(const std::function<void()>& work) {
  const pid_t parent = ::getpid();
  child_ = ::fork();
  if (child_ != 0) return;
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) ::_exit(1);
  try {
    work();
  } catch (...) {
    ::_exit(1);
  }
  ::_exit(0);
}

BackgroundChild::~BackgroundChild() {
  if (poll()) return;
  ::kill(child_, SIGKILL);
  ::waitpid(child_, nullptr, WNOHANG);
}

std::optional<bool> BackgroundChild::poll() {
  if (child_ <= 0) return good_;
  int status = 0;
  const pid_t ended = ::waitpid(child_, &status, WNOHANG);
  if (ended == 0 || (ended < 0 && errno == EINTR)) return std::nullopt;
  good_ = ended == child_ && WIFEXITED(status) && WEXITSTATUS(status) == 0;
  child_ = -1;
  return good_;
}

}  // namespace longhaul::cluster
