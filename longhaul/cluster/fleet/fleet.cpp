#include "longhaul/cluster/fleet/fleet.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "longhaul/base/clock.h"
#include "longhaul/base/error.h"
#include "longhaul/base/hash.h"

namespace longhaul::cluster {
namespace {

/// Makes a directory of this user alone, or checks that it is one.
void make_own(const fs::path& dir) {
  if (::mkdir(dir.c_str(), 0700) != 0 && errno != EEXIST) {
    throw to_error(fs::filesystem_error("cannot create directory", dir,
                                        std::error_code(errno, std::generic_category())));
  }
  if (!run::is_own_directory(dir, 077)) {
    fail_input("cluster",
               "{}: is no directory of this user alone; remove it, because workers' "
               "files would go there",
               dir.string());
  }
}

/// Makes the root of the directories, and returns its path.
const fs::path& made_root(const NodeDirectories& directories) {
  make_own(directories.root);
  return directories.root;
}

void remove_files(const fs::path& dir) noexcept {
  for (const fs::path& path : paths_in(dir)) {
    if (!is_seen_directory(path)) try_remove(path);
  }
}

}  // namespace

NodeDirectories node_directories(const fs::path& run_dir, const std::string& job) {
  const std::string whole = fs::absolute(run_dir).lexically_normal().string();
  const std::string name =
      run::supervised_prefix() + hash_hex(whole + '\n' + job).substr(0, 16);
  return {fs::path(run::kNodeMemory) / name};
}

HeldDirectories::HeldDirectories(NodeDirectories directories)
    : directories_(std::move(directories)), hold_(made_root(directories_)) {
  run::remove_abandoned(directories_.root.parent_path(), system_time());
  make_own(directories_.records());
  make_own(directories_.memory());
  make_own(directories_.segments());
}

void HeldDirectories::clean_up() const noexcept {
  if (!hold_.alone()) return;
  try {
    if (run::has_living_ranks(directories_.root)) return;
  } catch (const std::exception&) {
    return;
  }
  remove_files(directories_.records());
  remove_segments();
  for (const fs::path& dir : {directories_.records(), directories_.segments(),
                              directories_.memory(), directories_.root}) {
    ::rmdir(dir.c_str());  // the directory stays where a state lies in it
  }
}

void HeldDirectories::remove_segments() const noexcept {
  remove_files(directories_.segments());
}

}  // namespace longhaul::cluster
