#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>

#include "longhaul/base/error.h"
#include "longhaul/objects/local_copy.h"

namespace longhaul::objects {
namespace {

/// Returns a directory of /tmp into which only this user writes.
fs::path own_temporary() {
  fs::path dir = fmt::format("/tmp/longhaul-{}", ::geteuid());
  struct stat status{};
  const bool there = ::mkdir(dir.c_str(), 0700) == 0 || errno == EEXIST;
  const bool own = there && ::lstat(dir.c_str(), &status) == 0 &&
                   S_ISDIR(status.st_mode) && status.st_uid == ::geteuid() &&
                   (status.st_mode & (S_IWGRP | S_IWOTH)) == 0;
  if (own) return dir;
  fail_input("objects",
             "{}: others may write there, so no copy there can be trusted; set HOME or "
             "XDG_CACHE_HOME, or name a directory with data.cache",
             dir.string());
}

}  // namespace

fs::path default_cache() {
  const char* const cache = std::getenv("XDG_CACHE_HOME");
  const char* const home = std::getenv("HOME");
  const fs::path base = cache != nullptr && *cache == '/'  ? fs::path(cache)
                        : home != nullptr && *home != '\0' ? fs::path(home) / ".cache"
                                                           : own_temporary();
  return base / "longhaul/objects";
}

}  // namespace longhaul::objects
