#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "longhaul/base/file.h"

namespace longhaul {

/// What a run knows of itself, in run_dir/run.json: who it is and what must not be lost.
/// Rank 0 writes it; each write survives a power cut whole or not at all.
struct RunPast {
  std::string run;  ///< the identity: 32 hexadecimal digits, made when the run began
  /// Starts that have taken their state, from wherever checkpoint.resume said.
  int64_t loads = 0;
  /// The step of the newest checkpoint that was committed and not set aside since.
  /// Absent: there is none that could be lost.
  std::optional<int64_t> newest;
  std::string checkpoints;  ///< where that checkpoint was written, as place_of() says it

  /// A run that has only just begun.
  static RunPast begin();
  /// Nothing where there is no such file. For a run of a release that wrote none: what
  /// events.jsonl says of its checkpoints, under a new identity. InputError when a file
  /// does not hold what it must; TemporaryError where it cannot be read now.
  static std::optional<RunPast> read(const fs::path& run_dir);
  void write(const fs::path& run_dir) const;

  /// A directory as the record names it: absolute, and with U+FFFD for bytes that are no
  /// UTF-8, which JSON cannot hold. Whoever compares a directory with `checkpoints`
  /// compares this.
  static std::string place_of(const fs::path& dir);
  /// The newest checkpoint, where it was written to `dir`.
  std::optional<int64_t> newest_in(const fs::path& dir) const;
  /// Whether the newest checkpoint is gone: neither in `dir` nor where it was written,
  /// which is another place where checkpoint.dir has changed since. A place that cannot
  /// be looked at is none where a checkpoint is missing.
  bool misses_newest(const fs::path& dir) const;
};

/// The identity in run_dir/run.json alone, as it is. Errors as above.
std::optional<std::string> read_run_identity(const fs::path& run_dir);

/// The marker of a directory of checkpoints: the identity of the run that writes there.
/// Nothing where the directory has none, or is absent. Errors as above.
std::optional<std::string> read_checkpoints_owner(const fs::path& checkpoints);
/// Durable before it returns.
void write_checkpoints_owner(const fs::path& checkpoints, const std::string& run);

}  // namespace longhaul
