#include "longhaul/objects/file_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>
#include <utility>

#include "longhaul/base/error.h"
#include "longhaul/base/refused.h"

namespace longhaul::objects {

namespace {

int open_lock(const fs::path& path) {
  const int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
  if (fd < 0) throw refused("objects", "the file " + path.string(), errno);
  return fd;
}

}  // namespace

FileLock::FileLock(const fs::path& path) : path_(path), fd_(open_lock(path)) {}

FileLock::~FileLock() {
  if (fd_ < 0) return;
  release();
  ::close(fd_);
}

FileLock::FileLock(FileLock&& other) noexcept
    : path_(std::move(other.path_)), fd_(std::exchange(other.fd_, -1)) {}

bool FileLock::is_there() const {
  struct stat named{};
  struct stat open{};
  return ::stat(path_.c_str(), &named) == 0 && ::fstat(fd_, &open) == 0 &&
         named.st_ino == open.st_ino && named.st_dev == open.st_dev;
}

bool FileLock::take(int kind) {
  while (true) {
    const bool locked = ::flock(fd_, kind | LOCK_NB) == 0;
    if (locked && is_there()) return true;
    // NFS answers ESTALE if another machine has removed the file.
    if (!locked && errno != ESTALE) break;
    const int fd = open_lock(path_);
    ::close(std::exchange(fd_, fd));
  }
  if (errno == EWOULDBLOCK) return false;
  fail_input("objects",
             "{}: its file system gives no lock: {}; name a directory of a local disk "
             "with XDG_CACHE_HOME, or with data.cache",
             path_.string(), std::generic_category().message(errno));
}

void FileLock::release() { ::flock(fd_, LOCK_UN); }

void FileLock::remove() { ::unlink(path_.c_str()); }

void FileLock::touch() { ::futimens(fd_, nullptr); }

}  // namespace longhaul::objects
