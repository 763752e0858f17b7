#pragma once

#include <cstdint>
#include <string>

#include "longhaul/base/file.h"

namespace longhaul::run {

// Runs leave directories in a machine's memory, each of one user, one run and one job.
// Only the runs themselves remove the directories.

inline constexpr const char* kNodeMemory = "/dev/shm";

/// Returns how the names of this user's directories begin: of supervised runs, and of
/// runs without a supervisor.
std::string supervised_prefix();
std::string unsupervised_prefix();

/// Returns whether this is a directory of this user, and no link, whose mode has none of
/// the bits `closed`.
bool is_own_directory(const fs::path& path, unsigned closed = 0);

/// A directory with a rank's state is kept for a next start for kStateKeptSeconds after
/// the state was last renewed. Any other directory is kept for kOthersKeptSeconds,
/// because a start that has just made it may not have written its files yet.
inline constexpr double kStateKeptSeconds = 24.0 * 3600.0;
inline constexpr double kOthersKeptSeconds = 600.0;

/// Ends the name of a file with a rank's state.
inline constexpr const char* kPartSuffix = ".part";

/// Tells other processes that a directory is in use, for as long as it lives.
class DirectoryHold {
 public:
  /// Throws InputError or TemporaryError if the directory cannot be opened.
  explicit DirectoryHold(const fs::path& dir);
  /// Notes that the contents of the directory were renewed now.
  void touch() const;
  /// Returns whether no other process holds the directory.
  bool alone() const;

 private:
  File dir_;
};

/// Returns whether a process lives whose rank record (rank_record.h) lies below `dir`.
bool has_living_ranks(const fs::path& dir);

/// Returns the bytes of all ranks' states that are kept below `dir`.
uint64_t state_bytes(const fs::path& dir);

/// Removes directories that this user's runs have left in `memory`: those that no process
/// holds, that have no living rank, and that were kept for long enough at the time `now`
/// (seconds since 1970). Never throws; what cannot be removed stays.
void remove_abandoned(const fs::path& memory, double now) noexcept;

}  // namespace longhaul::run
