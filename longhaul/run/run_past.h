#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "longhaul/base/file.h"

namespace longhaul::run {

/// What a run knows about itself, in run_dir/run.json: its identity, and what must not be
/// lost. Rank 0 writes the file; each write survives a power cut whole or not at all.
struct RunPast {
  std::string run;  ///< the identity: 32 hexadecimal digits, made when the run began
  /// How many starts have loaded their state, from wherever checkpoint.resume said.
  int64_t loads = 0;
  /// The step of the newest checkpoint that was committed and not set aside since.
  /// Absent: there is none that could be lost.
  std::optional<int64_t> newest;
  std::string checkpoints;  ///< where that checkpoint was written, as place_of() says it
  /// The identities that were given up here to begin anew, the newest last.
  std::vector<std::string> given_up;
  bool has_given_up(const std::string& identity) const;

  /// Returns the record of a run that has only just begun.
  static RunPast begin();
  /// Returns the record of a new run in the place of this one, which is given up.
  RunPast begin_anew() const;
  /// Reads the record; nothing if there is no such file. A run of a release that wrote no
  /// such file gets a record with a new identity, if its events.jsonl tells of a
  /// checkpoint. Throws InputError if a file does not hold what it must, and
  /// TemporaryError if a file cannot be read now.
  static std::optional<RunPast> read(const fs::path& run_dir);
  void write(const fs::path& run_dir) const;

  /// Returns a directory as the record names it: absolute, and with U+FFFD for bytes that
  /// are no UTF-8, which JSON cannot hold. Whoever compares a directory with
  /// `checkpoints` compares this name.
  static std::string place_of(const fs::path& dir);
  /// Returns the step of the newest checkpoint if it was written to `dir`, else nothing.
  std::optional<int64_t> newest_in(const fs::path& dir) const;
  /// Returns whether the newest checkpoint, or its manifest, is gone: it is neither in
  /// `dir` nor where it was written, which is another place if checkpoint.dir has changed
  /// since. A place that cannot be looked at counts as one that has the checkpoint.
  bool misses_newest(const fs::path& dir) const;
  /// Returns whether neither this record nor events.jsonl tells of a start that loaded
  /// its state: then nobody knows which checkpoints were committed.
  bool knows_no_start(const fs::path& run_dir) const;
};

/// Returns the steps of the checkpoints that events.jsonl tells of, without those beyond
/// a step to which the run has gone back since. Old checkpoints among them may have been
/// deleted.
std::set<int64_t> committed_by_events(const fs::path& run_dir);

/// Reads the identity in run_dir/run.json alone. Throws what RunPast::read throws.
std::optional<std::string> read_run_identity(const fs::path& run_dir);

/// Returns a new identity of a run, or a new name for CheckpointsMarker::names: 32
/// hexadecimal digits.
std::string new_identity();
/// Returns whether a text has the form that new_identity() returns.
bool is_identity(const std::string& text);

/// Who writes a mirror of checkpoints.
struct MirrorOwner {
  std::string run;   ///< the run's identity
  int attempt = 0;   ///< the number of its start
  std::string name;  ///< the newest of CheckpointsMarker::names; empty: older releases
};

/// What marks a directory of checkpoints.
struct CheckpointsMarker {
  std::string run;  ///< the identity of the run that writes there
  /// The highest number of a start with a mirror that has written there; 0: none.
  int attempt = 0;
  /// The mirror gets a new name before each checkpoint that is copied to it. This list
  /// has the names that the directory has given, and the names that it found when it took
  /// a checkpoint from the mirror. The newest name is the last one. A copy of the
  /// directory lacks the names that were given after the copy was made.
  std::vector<std::string> names;
  /// The directory of the run `run`, as RunPast::place_of() says it; empty: of an older
  /// release.
  std::string run_dir = {};

  bool operator==(const CheckpointsMarker&) const = default;
};

/// Reads the marker of a directory of checkpoints; nothing if the directory has none or
/// is absent. Throws what RunPast::read throws.
std::optional<CheckpointsMarker> read_checkpoints_marker(const fs::path& checkpoints);
/// Writes the marker, which is durable when the call returns.
void write_checkpoints_marker(const fs::path& checkpoints,
                              const CheckpointsMarker& marker);

/// Returns read_checkpoints_marker()'s run.
std::optional<std::string> read_checkpoints_owner(const fs::path& checkpoints);
/// Returns whether a directory is a checkpoint that another run than `run` saved, as its
/// manifest says. Returns false if the manifest names no run, and if `run` is empty.
bool is_strangers(const fs::path& step_dir, const std::string& run);
/// Adds to the marker of a directory of checkpoints what it lacks of `more`: the run, the
/// number of a start, and names. Empty names are left out. A `run_dir` that is not empty
/// replaces the one of the marker. Returns the marker.
CheckpointsMarker mark_checkpoints(const fs::path& checkpoints,
                                   const CheckpointsMarker& more);

}  // namespace longhaul::run
