#include "longhaul/run/node_memory.h"

#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>

#include "longhaul/base/error.h"
#include "longhaul/base/process.h"
#include "longhaul/run/rank_record.h"

namespace longhaul::run {
namespace {

/// What lies in a directory.
struct Contents {
  double newest = 0.0;       ///< when something was changed last, in seconds since 1970
  uint64_t state_bytes = 0;  ///< of all states
  bool has_state = false;
};

double changed_at(const fs::path& path) {
  struct stat info{};
  return ::lstat(path.c_str(), &info) == 0 ? static_cast<double>(info.st_mtim.tv_sec)
                                           : 0.0;
}

Contents contents_of(const fs::path& dir) {
  Contents found{.newest = changed_at(dir)};
  std::error_code error;
  for (fs::recursive_directory_iterator entry(dir, error), end; !error && entry != end;
       entry.increment(error)) {
    found.newest = std::max(found.newest, changed_at(entry->path()));
    if (entry->path().extension() != kPartSuffix) continue;
    found.has_state = true;
    std::error_code gone;
    const uintmax_t bytes = entry->file_size(gone);
    if (!gone) found.state_bytes += bytes;
  }
  return found;
}

bool is_abandoned(const fs::path& dir, double now) {
  if (!is_own_directory(dir) || !DirectoryHold(dir).alone() || has_living_ranks(dir)) {
    return false;
  }
  const Contents found = contents_of(dir);
  return now - found.newest > (found.has_state ? kStateKeptSeconds : kOthersKeptSeconds);
}

}  // namespace

std::string supervised_prefix() { return fmt::format("longhaul-{}-", ::geteuid()); }
std::string unsupervised_prefix() { return fmt::format("longhaul_{}_", ::geteuid()); }

bool is_own_directory(const fs::path& path, unsigned closed) {
  struct stat info{};
  return ::lstat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode) &&
         info.st_uid == ::geteuid() && (info.st_mode & closed) == 0;
}

DirectoryHold::DirectoryHold(const fs::path& dir) : dir_(File::open_read(dir)) {
  ::flock(dir_.fd(), LOCK_SH | LOCK_NB);
}

void DirectoryHold::touch() const { ::futimens(dir_.fd(), nullptr); }

bool DirectoryHold::alone() const { return ::flock(dir_.fd(), LOCK_EX | LOCK_NB) == 0; }

bool has_living_ranks(const fs::path& dir) {
  std::error_code error;
  for (fs::recursive_directory_iterator entry(dir, error), end; !error && entry != end;
       entry.increment(error)) {
    if (entry->path().extension() != ".record") continue;
    try {
      if (process_start(read_rank_record(entry->path()).pid) != 0) return true;
    } catch (const Error&) {
      continue;  // another version made the directory
    }
  }
  return false;
}

uint64_t state_bytes(const fs::path& dir) { return contents_of(dir).state_bytes; }

void remove_abandoned(const fs::path& memory, double now) noexcept {
  try {
    for (const fs::path& dir : paths_in(memory)) {
      const std::string name = dir.filename().string();
      if (!name.starts_with(supervised_prefix()) &&
          !name.starts_with(unsupervised_prefix())) {
        continue;
      }
      try {
        if (is_abandoned(dir, now)) try_remove_all(dir);
      } catch (const Error&) {
        continue;  // another process removes it
      }
    }
  } catch (const std::exception&) {
    return;  // no memory is left for a list of names
  }
}

}  // namespace longhaul::run
