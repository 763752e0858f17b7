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

FileLock::FileLock(const fs::path& path)
    : path_(path), fd_(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666)) {
  if (fd_ < 0) throw refused("objects", "the file " + path.string(), errno);
}

FileLock::~FileLock() {
  if (fd_ < 0) return;
  release();
  ::close(fd_);
}

FileLock::FileLock(FileLock&& other) noexcept
    : path_(std::move(other.path_)), fd_(std::exchange(other.fd_, -1)) {}

bool FileLock::take(int kind) {
  if (::flock(fd_, kind | LOCK_NB) == 0) return true;
  if (errno == EWOULDBLOCK) return false;
  fail_input("objects",
             "{}: its file system gives no lock: {}; name a directory of a local disk "
             "with XDG_CACHE_HOME, or with data.cache",
             path_.string(), std::generic_category().message(errno));
}

void FileLock::release() { ::flock(fd_, LOCK_UN); }

void FileLock::touch() { ::futimens(fd_, nullptr); }

}  // namespace longhaul::objects
