#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "longhaul/base/file.h"
#include "longhaul/config/run_config.h"

namespace longhaul {
class RunLock;
}

namespace longhaul::checkpoint {

struct CheckpointEntry {
  int64_t step = 0;
  fs::path path;
  bool valid = false;   ///< the manifest reads and every file has its size
  std::string problem;  ///< why not
};

/// All step_N directories under `dir`, by ascending step. An absent `dir` gives none; one
/// that cannot be asked for is an error, for what is in it is not known. Reads manifests
/// and sizes, no data.
std::vector<CheckpointEntry> list_checkpoints(const fs::path& dir);

/// Whether `dir` has a checkpoint, whole or damaged: a step_N directory with a manifest,
/// which is not read. Errors as above.
bool has_committed(const fs::path& dir);

/// Checkpoints of `dir` that were given other names (set_aside), by name. Errors as
/// above.
std::vector<fs::path> list_set_aside(const fs::path& dir);

/// The newest valid checkpoint in `dir`. Invalid ones above it are passed over;
/// `skipped`, where given, receives a line for each.
std::optional<CheckpointEntry> find_latest(const fs::path& dir,
                                           std::vector<std::string>* skipped = nullptr);

/// Returns the valid checkpoints of a run, or of a directory of checkpoints, the newest
/// first. `skipped`, where given, receives a line for each that is not valid.
std::vector<fs::path> valid_checkpoints_of(const fs::path& path,
                                           std::vector<std::string>* skipped = nullptr);

/// Which checkpoints stay.
struct Retention {
  int64_t keep = 0;                  ///< newest ones; 0: all
  int64_t milestone_every = 0;       ///< steps that it divides stay for ever; 0: none
  std::set<int64_t> verified = {};   ///< steps whose content was read and found good
  const RunLock* lock = nullptr;     ///< checked before each deletion; may be null
  std::function<void()> moved = {};  ///< called after each file that went; may be empty
};

/// Deletes the valid checkpoints that have `keep` verified ones above them and are no
/// milestones, and the leftovers of writes that never ended below the newest valid one.
/// The manifest goes first, so that what is half deleted is no checkpoint. Rank 0 only.
/// Returns what it deleted.
std::vector<fs::path> apply_retention(const fs::path& dir, const Retention& retention);

/// Makes a checkpoint none: its manifest goes, durably.
void withdraw_checkpoint(const fs::path& step_dir);

/// Gives a checkpoint directory a name under which no start looks for one:
/// step_00000005.REASON. Returns it.
fs::path set_aside(const fs::path& step_dir, const std::string& reason);

/// What [checkpoint] resume asks for: the checkpoints to try, the best first. Latest: all
/// valid ones in `checkpoints_dir`, the newest first, InputError where all are damaged;
/// Never: none; Step: that one,
/// InputError if absent or invalid; Path: a checkpoint, or all valid ones of a run,
/// InputError if there is none. `skipped` as in find_latest.
std::vector<fs::path> resume_candidates(const ResumeFrom& resume,
                                        const fs::path& checkpoints_dir,
                                        std::vector<std::string>* skipped = nullptr);

/// Where a run directory keeps its checkpoints: run_dir/checkpoints, or what
/// [checkpoint] dir in its config.toml says.
fs::path checkpoints_dir_of(const fs::path& run_dir);

/// The newest valid checkpoint of a run or of a directory of checkpoints. `skipped`,
/// where given, receives a line for each newer one that was passed over: those that are
/// not whole, and one that the run knows to have committed and that is not there any
/// more.
std::optional<CheckpointEntry> newest_of(const fs::path& path,
                                         std::vector<std::string>* skipped = nullptr);

/// The checkpoint that a path stands for: itself, or the newest_of() what it is; nothing
/// if there is none.
std::optional<fs::path> find_checkpoint(const fs::path& path,
                                        std::vector<std::string>* skipped = nullptr);

/// Calls `use` with the model that a person named. Where that is a run, or a directory of
/// checkpoints, and its newest checkpoint turns out to be damaged while it is read,
/// `tell` gets a line and `use` is called again with the next older one that has all its
/// files. An error that is not of the files, or of the last of them, goes through. `use`
/// must leave nothing behind when it throws.
void with_fall_back(const fs::path& named,
                    const std::function<void(const fs::path&)>& use,
                    const std::function<void(const std::string&)>& tell);

/// The newest checkpoint that the run in `run_dir` committed, where it is missing from
/// `dir`; nothing where it is there or where the run wrote it (checkpoint.dir may have
/// changed since), or `run_dir` is no run.
std::optional<fs::path> missing_newest(const fs::path& run_dir, const fs::path& dir);

}  // namespace longhaul::checkpoint
