#include "longhaul/cluster/watch/storage_watch.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <memory>

#include "longhaul/cluster/process/background_child.h"

namespace longhaul::cluster {
namespace {

/// Makes only calls that are allowed after a fork of a process with threads.
void touch(const char* file) {
  const int fd = ::open(file, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
  if (fd < 0) return;
  const ssize_t ignored = ::write(fd, "?", 1);
  static_cast<void>(ignored);
  ::close(fd);
  ::unlink(file);
}

}  // namespace

StorageQuestion ask_storage(const fs::path& dir) {
  const std::string file = dir / fmt::format(".storage_probe_{}", ::getpid());
  auto child = std::make_shared<BackgroundChild>([&] { touch(file.c_str()); });
  // If no child process could be started, the storage counts as good.
  return [child] { return child->poll().has_value(); };
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
