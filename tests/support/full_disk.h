#pragma once

#include <signal.h>
#include <sys/resource.h>

namespace longhaul {

/// Lets no file of this process grow beyond a number of bytes while the object lives, as
/// on a disk that is full. A write is cut short, and the next write fails.
class FullDisk {
 public:
  explicit FullDisk(rlim_t bytes) : before_(::signal(SIGXFSZ, SIG_IGN)) {
    ::getrlimit(RLIMIT_FSIZE, &limit_);
    const struct rlimit small = {bytes, limit_.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &small);
  }
  ~FullDisk() {
    ::setrlimit(RLIMIT_FSIZE, &limit_);
    ::signal(SIGXFSZ, before_);
  }
  FullDisk(const FullDisk&) = delete;
  FullDisk& operator=(const FullDisk&) = delete;

 private:
  void (*before_)(int);
  struct rlimit limit_{};
};

}  // namespace longhaul
