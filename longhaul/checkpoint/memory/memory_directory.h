#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "longhaul/base/file.h"
#include "longhaul/checkpoint/memory/part.h"

namespace longhaul::checkpoint {

/// The directory of a run's parts in this machine's memory. `memory_dir` is what
/// LONGHAUL_MEMORY_DIR says, which must be absolute; empty: /dev/shm. The name is made of
/// the user, the job and the run directory, so that neither two runs nor two users meet.
fs::path memory_directory(const fs::path& memory_dir, const fs::path& run_dir,
                          const std::string& job);

/// Makes it, for this user alone. InputError when it, or LONGHAUL_MEMORY_DIR, belongs to
/// another user, may be entered by others, or is a link.
void make_memory_directory(const fs::path& dir);

/// The parts' files, sorted; none where there is no such directory.
std::vector<std::string> list_part_names(const fs::path& dir);

/// Removes the parts that are not kept, and the directory when nothing is in it. Never
/// throws: what cannot be removed stays.
void remove_parts(const fs::path& dir,
                  const std::function<bool(const PartName&)>& kept) noexcept;

/// Bytes that new files in `dir` may take: what its file system has left, and at most
/// what the machine has.
uint64_t free_memory_for(const fs::path& dir);

// The key of a run, in memory.json of its directory, says which parts are of its past: a
// part of another key belongs to what has not happened (the run was begun anew, or rolled
// back). 32 hex digits.

/// Nothing where the run has none that can be read.
std::optional<std::string> read_run_key(const fs::path& run_dir);
/// A new one, durable: no part counts any more.
std::string renew_run_key(const fs::path& run_dir);
/// The run has none from now on.
void remove_run_key(const fs::path& run_dir);

}  // namespace longhaul::checkpoint
