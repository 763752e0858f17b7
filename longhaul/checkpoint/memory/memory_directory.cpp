#include "longhaul/checkpoint/memory/memory_directory.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "longhaul/base/clock.h"
#include "longhaul/base/error.h"
#include "longhaul/base/hash.h"
#include "longhaul/base/json.h"
#include "longhaul/run/files.h"
#include "longhaul/run/node_memory.h"
#include "longhaul/run/run_past.h"

namespace longhaul::checkpoint {
namespace {

// Digits of the hash that tells apart the directories of one user.
constexpr size_t kNameDigits = 16;

void make_private(const fs::path& dir) {
  if (::mkdir(dir.c_str(), S_IRWXU) != 0 && errno != EEXIST) {
    fail_input("memory",
               "{}: the directory cannot be made: {}; set LONGHAUL_MEMORY_DIR to a "
               "directory in memory that this user may write",
               dir.string(), std::strerror(errno));
  }
  if (!run::is_own_directory(dir, S_IRWXG | S_IRWXO)) {
    fail_input("memory",
               "{}: is no directory of user {} that is closed to others (mode 0700); "
               "remove it, or set LONGHAUL_MEMORY_DIR to another directory",
               dir.string(), ::geteuid());
  }
}

}  // namespace

fs::path memory_directory(const fs::path& memory_dir, const fs::path& run_dir,
                          const std::string& job) {
  const std::string run_path = fs::weakly_canonical(fs::absolute(run_dir)).string();
  if (memory_dir.empty()) {
    return fs::path(run::kNodeMemory) /
           (run::unsupervised_prefix() +
            hash_hex(job + "\n" + run_path).substr(0, kNameDigits));
  }
  if (!memory_dir.is_absolute()) {
    fail_config(
        "memory",
        "LONGHAUL_MEMORY_DIR = {}: give an absolute path of a directory in memory",
        memory_dir.string());
  }
  return memory_dir / fmt::format("run_{}", hash_hex(run_path).substr(0, kNameDigits));
}

void make_memory_directory(const fs::path& dir) {
  // /dev/shm itself belongs to all users and stays open to them.
  if (dir.parent_path() != run::kNodeMemory) {
    make_private(dir.parent_path());
  } else {
    run::remove_abandoned(dir.parent_path(), system_time());
  }
  make_private(dir);
}

std::vector<std::string> list_part_names(const fs::path& dir) {
  std::vector<std::string> names;
  for (const fs::path& path : paths_in(dir)) {
    const std::string name = path.filename().string();
    if (PartName::parse(name) && is_seen_file(path)) names.push_back(name);
  }
  std::sort(names.begin(), names.end());
  return names;
}

void remove_parts(const fs::path& dir,
                  const std::function<bool(const PartName&)>& kept) noexcept {
  try {
    for (const std::string& name : list_part_names(dir)) {
      if (!kept(*PartName::parse(name))) try_remove(dir / name);
    }
  } catch (const std::exception&) {
    return;  // memory for a list of names is lacking
  }
  ::rmdir(dir.c_str());  // stays when it is not empty
}

uint64_t free_memory_for(const fs::path& dir) {
  struct statvfs system = {};
  if (::statvfs(dir.c_str(), &system) != 0) {
    fail_input("memory", "{}: statvfs: {}", dir.string(), std::strerror(errno));
  }
  const uint64_t room = system.f_bavail * system.f_frsize;
  const auto available = number_behind("/proc/meminfo", "MemAvailable:");
  return available ? std::min(room, uint64_t(*available)) : room;
}

std::optional<std::string> read_run_key(const fs::path& run_dir) {
  const fs::path path = run_dir / run::kMemoryKeyFile;
  if (!is_seen_file(path)) return std::nullopt;
  try {
    const Json json = parse_json(read_text(path, 1 << 16), path.string(), 4);
    std::string key = json.at("run").get<std::string>();
    return run::is_identity(key) ? std::optional(key) : std::nullopt;
  } catch (const std::exception&) {
    return std::nullopt;  // without a key no part counts
  }
}

std::string renew_run_key(const fs::path& run_dir) {
  const std::string key = run::new_identity();
  write_text_atomic(run_dir / run::kMemoryKeyFile, json_text(Json{{"run", key}}));
  return key;
}

void remove_run_key(const fs::path& run_dir) {
  if (fs::remove(run_dir / run::kMemoryKeyFile)) sync_directory(run_dir);
}

}  // namespace longhaul::checkpoint
