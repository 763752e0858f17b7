#include "longhaul/cluster/watch/storage_watch.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <utility>

namespace longhaul::cluster {
namespace {

/// Makes only calls that are allowed after a fork of a process with threads.
[[noreturn]] void touch(const char* file) {
  const int fd = ::open(file, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
  if (fd >= 0) {
    const ssize_t ignored = ::write(fd, "?", 1);
    static_cast<void>(ignored);
    ::close(fd);
    ::unlink(file);
  }
  ::_exit(0);
}

class StorageChild {
 public:
  explicit StorageChild(const fs::path& dir) {
    const std::string file = dir / fmt::format(".storage_probe_{}", ::getpid());
    child_ = ::fork();
    if (child_ != 0) return;
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    touch(file.c_str());
  }
  ~StorageChild() {
    if (answered()) return;
    ::kill(child_, SIGKILL);
    ::waitpid(child_, nullptr, WNOHANG);
  }
  StorageChild(const StorageChild&) = delete;
  StorageChild& operator=(const StorageChild&) = delete;

  /// Returns true also where no child could be had: nothing is known against the storage.
  bool answered() {
    if (child_ > 0) {
      const pid_t ended = ::waitpid(child_, nullptr, WNOHANG);
      if (ended == child_ || (ended < 0 && errno != EINTR)) child_ = -1;
    }
    return child_ <= 0;
  }

 private:
  pid_t child_ = -1;
};

}  // namespace

StorageQuestion ask_storage(const fs::path& dir) {
  return [child = std::make_shared<StorageChild>(dir)] { return child->answered(); };
}

StorageState StorageWatch::look(bool hang) {
  if (!asked_) {
    if (!hang) return StorageState::Answers;
    asked_.emplace();
    for (const fs::path& dir : directories_) open_.push_back({dir, ask_(dir)});
    return StorageState::Asked;
  }
  std::erase_if(open_, [](const Open& one) { return one.answered(); });
  if (open_.empty()) {
    asked_.reset();
    if (!std::exchange(was_silent_, false)) return StorageState::Answers;
    back_.emplace();
    return StorageState::Back;
  }
  if (asked_seconds() < limits_.answer_seconds) return StorageState::Asked;
  was_silent_ = was_silent_ || hang;
  return asked_seconds() < limits_.wait_seconds ? StorageState::Silent
                                                : StorageState::GivenUp;
}

std::string StorageWatch::names() const {
  std::string text;
  for (const Open& one : open_) text += (text.empty() ? "" : ", ") + one.dir.string();
  return text;
}

void StorageWatch::restart() {
  open_.clear();
  asked_.reset();
  back_.reset();
  was_silent_ = false;
}

}  // namespace longhaul::cluster
