#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "longhaul/base/file.h"
#include "longhaul/config/run_config.h"

namespace longhaul::checkpoint {

/// "step_00000005".
std::string step_directory_name(int64_t step);

struct CheckpointEntry {
  int64_t step = 0;
  fs::path path;
  bool valid = false;   ///< the manifest reads and every file has its size
  std::string problem;  ///< why not
};

/// All step_N directories under `dir`, by ascending step. An absent `dir` gives none.
/// Reads manifests and sizes, no data.
std::vector<CheckpointEntry> list_checkpoints(const fs::path& dir);

/// The newest valid checkpoint in `dir`. Invalid ones above it are passed over;
/// `skipped`, where given, receives a line for each.
std::optional<CheckpointEntry> find_latest(const fs::path& dir,
                                           std::vector<std::string>* skipped = nullptr);

/// Deletes the oldest valid checkpoints until `keep` remain (0 keeps all), and the
/// leftovers of writes that never ended below the newest valid one. The manifest goes
/// first, so that what is half deleted is no checkpoint. Rank 0 only. Returns what it
/// deleted.
std::vector<fs::path> apply_retention(const fs::path& dir, int64_t keep);

/// What [checkpoint] resume asks for. Latest: the newest valid one in `checkpoints_dir`
/// or nothing; Never: nothing; Step: that one, InputError if absent or invalid; Path: a
/// checkpoint or a run directory (its newest valid checkpoint), InputError if neither.
/// `skipped` as in find_latest.
std::optional<fs::path> choose_resume(const ResumeFrom& resume,
                                      const fs::path& checkpoints_dir,
                                      std::vector<std::string>* skipped = nullptr);

/// Where a run directory keeps its checkpoints: run_dir/checkpoints, or what
/// [checkpoint] dir in its config.toml says.
fs::path checkpoints_dir_of(const fs::path& run_dir);

/// The checkpoint that a path stands for: itself, or the newest valid one of a run or of
/// a directory of checkpoints; nothing if it is none of these.
std::optional<fs::path> find_checkpoint(const fs::path& path);

}  // namespace longhaul::checkpoint
