#include "longhaul/objects/file_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>

#include "longhaul/base/error.h"
#include "longhaul/base/refused.h"

namespace longhaul::objects {

namespace {

Descriptor open_lock(const fs::path& path) {
  Descriptor fd(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666));
  if (!fd.is_open()) throw refused("objects", "the file " + path.string(), errno);
  return fd;
}

}  // namespace

FileLock::FileLock(const fs::path& path) : path_(path), fd_(open_lock(path)) {}

FileLock::~FileLock() {
  if (fd_.is_open()) release();
}

bool FileLock::is_there() const {
  struct stat named{};
  struct stat open{};
  return ::stat(path_.c_str(), &named) == 0 && ::fstat(fd_.get(), &open) == 0 &&
         named.st_ino == open.st_ino && named.st_dev == open.st_dev;
}

bool FileLock::take(int kind) {
  while (true) {
    const bool locked = ::flock(fd_.get(), kind | LOCK_NB) == 0;
    if (locked && is_there()) return true;
    // NFS answers ESTALE if another machine has removed the file.
    if (!locked && errno != ESTALE) break;
    fd_ = open_lock(path_);
  }
  if (errno == EWOULDBLOCK) return false;
  fail_input("objects",
             "{}: its file system gives no lock: {}; name a directory of a local disk "
             "with XDG_CACHE_HOME, or with data.cache",
             path_.string(), std::generic_category().message(errno));
}

void FileLock::release() { ::flock(fd_.get(), LOCK_UN); }

void FileLock::remove() { ::unlink(path_.c_str()); }

void FileLock::touch() { ::futimens(fd_.get(), nullptr); }

}  // namespace longhaul::objects
