#include "longhaul/cluster/fleet/fleet.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "longhaul/base/error.h"
#include "longhaul/base/hash.h"

namespace longhaul::cluster {
namespace {

/// Makes a directory of this user alone, or checks that it is one.
void make_own(const fs::path& dir) {
  if (::mkdir(dir.c_str(), 0700) != 0 && errno != EEXIST) {
    throw to_error(fs::filesystem_error("mkdir", dir,
                                        std::error_code(errno, std::generic_category())));
  }
  struct stat info{};
  if (::lstat(dir.c_str(), &info) != 0 || !S_ISDIR(info.st_mode) ||
      info.st_uid != ::geteuid() || (info.st_mode & 077) != 0) {
    throw InputError("cluster", fmt::format("{}: is no directory of this user alone; "
                                            "remove it, it would hold what workers leave",
                                            dir.string()));
  }
}

}  // namespace

NodeDirectories node_directories(const fs::path& run_dir, const std::string& job) {
  const std::string whole = fs::absolute(run_dir).lexically_normal().string();
  const std::string name = fmt::format("longhaul-{}-{}", ::geteuid(),
                                       hash_hex(whole + '\n' + job).substr(0, 16));
  return {fs::path("/dev/shm") / name};
}

void make_directories(const NodeDirectories& directories) {
  make_own(directories.root);
  make_own(directories.records());
  make_own(directories.memory());
}

}  // namespace longhaul::cluster
