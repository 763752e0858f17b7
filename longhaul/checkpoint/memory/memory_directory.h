#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "longhaul/base/file.h"
#include "longhaul/checkpoint/memory/part.h"

namespace longhaul::checkpoint {

/// Returns the directory in this machine's memory where a run keeps steps. `memory_dir`
/// is the value of LONGHAUL_MEMORY_DIR, which must be absolute; empty: /dev/shm. The name
/// follows from the user, the job and the run directory, so that two runs or two users
/// never share a directory.
fs::path memory_directory(const fs::path& memory_dir, const fs::path& run_dir,
                          const std::string& job);

/// Makes the directory, for this user alone; in /dev/shm also removes the directories
/// that earlier runs of this user have left there long ago. Throws InputError when it, or
/// LONGHAUL_MEMORY_DIR, belongs to another user, may be entered by others, or is a link.
void make_memory_directory(const fs::path& dir);

/// Returns the names of the files of parts (PartName), sorted; none if `dir` is absent.
std::vector<std::string> list_part_names(const fs::path& dir);

/// Removes the parts for which `kept` is false, and the directory when it is empty then.
/// Never throws: files that cannot be removed stay.
void remove_parts(const fs::path& dir,
                  const std::function<bool(const PartName&)>& kept) noexcept;

/// Returns the bytes that new files in `dir` may take: what its file system has left, and
/// at most what the machine has left.
uint64_t free_memory_for(const fs::path& dir);

// The key of a run marks the parts, states in memory, that belong to its past. It is in
// memory.json of the run's directory and has 32 hex digits. Parts with another key do not
// count: the run was begun anew, or rolled back, after they were written.

/// Returns the run's key; nothing where the run has none that can be read.
std::optional<std::string> read_run_key(const fs::path& run_dir);
/// Gives the run a new key, durably: no older part counts any more.
std::string renew_run_key(const fs::path& run_dir);
/// Removes the run's key.
void remove_run_key(const fs::path& run_dir);

}  // namespace longhaul::checkpoint
