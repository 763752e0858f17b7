#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "longhaul/base/file.h"

namespace longhaul::run {

/// What a run knows about itself, in run_dir/run.json: its identity, and what must not be
/// lost. Rank 0 writes the file; each write survives a power cut whole or not at all.
struct RunPast {
  std::string run;  ///< the identity: 32 hexadecimal digits, made when the run began
  /// How many starts have taken their state, from wherever checkpoint.resume said.
  int64_t loads = 0;
  /// The step of the newest checkpoint that was committed and not set aside since.
  /// Absent: there is none that could be lost.
  std::optional<int64_t> newest;
  std::string checkpoints;  ///< where that checkpoint was written, as place_of() says it
  /// Names this directory: 32 hexadecimal digits, which stay when the run begins anew.
  /// Two directories that go on as one run, from a mirror, have different homes.
  std::string home;
  /// The home, and the number of its start, that had written the mirror from which this
  /// directory went on; empty where it went on from none.
  std::string mirror_home;
  int mirror_attempt = 0;

  /// Returns the record of a run that has only just begun.
  static RunPast begin();
  /// Returns the record of a new run in this directory.
  RunPast begin_anew() const;
  /// Reads the record; nothing where there is no such file. For a run of a release that
  /// wrote none it is what events.jsonl says of the checkpoints, under a new identity.
  /// Throws InputError where a file does not hold what it must, and TemporaryError where
  /// a file cannot be read now.
  static std::optional<RunPast> read(const fs::path& run_dir);
  void write(const fs::path& run_dir) const;

  /// Returns a directory as the record names it: absolute, and with U+FFFD for bytes that
  /// are no UTF-8, which JSON cannot hold. Whoever compares a directory with
  /// `checkpoints` compares this name.
  static std::string place_of(const fs::path& dir);
  /// Returns the newest checkpoint where it was written to `dir`, else nothing.
  std::optional<int64_t> newest_in(const fs::path& dir) const;
  /// Returns whether the newest checkpoint is gone: it is neither in `dir` nor where it
  /// was written, which is another place if checkpoint.dir has changed since. A place
  /// that cannot be looked at counts as one that has the checkpoint.
  bool misses_newest(const fs::path& dir) const;
};

/// Reads the identity in run_dir/run.json alone. Throws what RunPast::read throws.
std::optional<std::string> read_run_identity(const fs::path& run_dir);

/// Reads the marker of a directory of checkpoints: the identity of the run that writes
/// there; nothing where the directory has no marker or is absent. Throws what
/// RunPast::read throws.
std::optional<std::string> read_checkpoints_owner(const fs::path& checkpoints);
/// Writes the marker, which is durable when the call returns.
void write_checkpoints_owner(const fs::path& checkpoints, const std::string& run);

}  // namespace longhaul::run
