#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "longhaul/base/file.h"
#include "longhaul/config/run_config.h"

namespace longhaul::run {
class RunLock;
}

namespace longhaul::checkpoint {

/// A step_N directory, and whether it is a valid checkpoint.
struct CheckpointEntry {
  int64_t step = 0;
  fs::path path;
  bool valid = false;   ///< whether the manifest can be read and every file has its size
  std::string problem;  ///< why it is not valid
  std::string run;      ///< Manifest::run; empty where the manifest cannot be read
  /// Whether the checkpoint is of another run than the one that owns the directory. Such
  /// a checkpoint is not valid here, whatever its files say, and nothing deletes it.
  bool stranger = false;
};

/// Throws InputError where `dir` or a directory above it is a link to nothing: what is
/// behind it is unknown, and it must not pass for an empty directory.
void refuse_dangling(const fs::path& dir);

/// Proves that the file system of `dir`, which exists, can hold a checkpoint: makes a
/// file, syncs and renames it, syncs the directory, and removes the file. The file's name
/// contains `node`, which names this machine. Throws InputError, with what to do, where
/// the file system can never do that. A full or broken disk is no error here, since a
/// save reports it.
void prove_durable(const fs::path& dir, const std::string& node);

/// Returns all step_N directories under `dir`, by ascending step; none where `dir` is
/// absent. Throws where `dir` does not answer or is a link to nothing, because its
/// content is unknown then. Reads manifests and sizes, no data.
///
/// The marker of `dir` (run::CheckpointsMarker) names the run that owns `dir`. Without a
/// marker the owner is the run that has saved the checkpoints; where several runs have
/// saved some, `dir` has no owner.
std::vector<CheckpointEntry> list_checkpoints(const fs::path& dir);

/// Returns whether `dir` has a checkpoint of its owner, whole or damaged: a step_N
/// directory with a manifest. A manifest that names no run counts as the owner's. Where
/// `dir` has no marker, `run` counts as its owner; if `run` is empty, every checkpoint
/// counts. Throws as list_checkpoints does.
bool has_committed(const fs::path& dir, const std::string& run = {});

/// Returns the checkpoints of `dir` that set_aside() has renamed, by name. Throws as
/// list_checkpoints does.
std::vector<fs::path> list_set_aside(const fs::path& dir);

/// Returns the newest valid checkpoint in `dir`. If given, `skipped` receives a line for
/// each newer checkpoint that is not valid.
std::optional<CheckpointEntry> find_latest(const fs::path& dir,
                                           std::vector<std::string>* skipped = nullptr);

/// Returns the valid checkpoints of a run, or of a directory of checkpoints, the newest
/// first. If given, `skipped` receives a line for each checkpoint that is not valid.
std::vector<fs::path> valid_checkpoints_of(const fs::path& path,
                                           std::vector<std::string>* skipped = nullptr);

/// Returns the checkpoints of these steps of a run, or of a directory of checkpoints, in
/// the order of `steps`. Throws InputError for a step that has none or a damaged one,
/// with the steps that there are, and for a step that is given twice.
std::vector<fs::path> checkpoints_of_steps(const fs::path& path,
                                           const std::vector<int64_t>& steps);

/// The rules by which old checkpoints are kept or deleted.
struct Retention {
  int64_t keep = 0;  ///< number of newest checkpoints that stay; 0: all
  int64_t milestone_every =
      0;  ///< checkpoints of steps that this number divides stay for ever; 0: none
  std::set<int64_t> verified = {};     ///< steps whose checkpoint was read and found good
  const run::RunLock* lock = nullptr;  ///< checked before each deletion; may be null
  std::function<void()> moved = {};    ///< called after each deleted file; may be empty
  /// Returns whether a checkpoint must stay for now, whatever the rules say; may be
  /// empty.
  std::function<bool(int64_t step)> held = {};
};

/// Deletes the valid checkpoints that have `keep` newer verified checkpoints and are no
/// milestones. Also deletes what saves that never ended have left at steps before the
/// newest valid checkpoint. The manifest is deleted first, so that a half-deleted
/// directory is no checkpoint. Returns the deleted directories. Call it on rank 0 only.
std::vector<fs::path> apply_retention(const fs::path& dir, const Retention& retention);

/// Deletes a checkpoint's manifest, durably: then the directory is no checkpoint any
/// more.
void withdraw_checkpoint(const fs::path& step_dir);

/// Gives a checkpoint directory a name under which no start looks for it,
/// step_00000005.REASON, and returns the new path.
fs::path set_aside(const fs::path& step_dir, const std::string& reason);
/// Sets a checkpoint aside if another run than `run` has saved it, so that `run` can save
/// the same step. Returns the new path; nothing where no such checkpoint is there.
std::optional<fs::path> set_stranger_aside(const fs::path& step_dir,
                                           const std::string& run);

/// Returns the checkpoints that [checkpoint] resume asks for, the best first:
/// - Latest: all valid checkpoints in `checkpoints_dir`, the newest first; throws
///   InputError where all are damaged.
/// - Never: no checkpoint.
/// - Step: the checkpoint of that step; throws InputError if it is absent or invalid.
/// - Path: a checkpoint, or all valid checkpoints of a run; throws InputError if there is
///   none.
///
/// `skipped` is used as in valid_checkpoints_of.
std::vector<fs::path> resume_candidates(const ResumeFrom& resume,
                                        const fs::path& checkpoints_dir,
                                        std::vector<std::string>* skipped = nullptr);

/// Returns where a run directory keeps its checkpoints: run_dir/checkpoints, or the
/// directory that [checkpoint] dir in its config.toml names.
fs::path checkpoints_dir_of(const fs::path& run_dir);

/// Returns the newest valid checkpoint of a run or of a directory of checkpoints. If
/// given, `skipped` receives a line for each newer checkpoint that was passed over:
/// checkpoints that are not whole, and a checkpoint that the run has committed and that
/// is missing.
std::optional<CheckpointEntry> newest_of(const fs::path& path,
                                         std::vector<std::string>* skipped = nullptr);

/// Returns the checkpoint that a path stands for: the path itself, or newest_of() the
/// path; nothing if there is none.
std::optional<fs::path> find_checkpoint(const fs::path& path,
                                        std::vector<std::string>* skipped = nullptr);

/// Calls `use` with the model that a person named. `named` may be a run or a directory of
/// checkpoints whose newest checkpoint turns out to be damaged while it is read. Then
/// calls `tell` with a line, and `use` with the next older checkpoint that has all its
/// files. Other errors, and errors of the last checkpoint, are thrown. `use` must leave
/// nothing behind when it throws.
void with_fall_back(const fs::path& named,
                    const std::function<void(const fs::path&)>& use,
                    const std::function<void(const std::string&)>& tell);

/// Returns the newest checkpoint that the run in `run_dir` has committed, where it is
/// missing from `dir`. Returns nothing where the checkpoint is there or the run wrote it
/// elsewhere (checkpoint.dir may have changed since), and where `run_dir` is no run.
std::optional<fs::path> missing_newest(const fs::path& run_dir, const fs::path& dir);

}  // namespace longhaul::checkpoint
