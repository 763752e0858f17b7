#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "longhaul/base/file.h"

namespace longhaul::checkpoint {

/// The result of verifying all checkpoints of a run.
struct RunVerdict {
  int64_t whole = 0;
  uint64_t bytes = 0;               ///< bytes that were read of whole checkpoints
  std::vector<std::string> broken;  ///< what is wrong with each broken checkpoint
  /// Checkpoints that could not be read for a reason that may pass. It is not known
  /// whether they are whole.
  std::vector<std::string> unasked;
};

/// Reads every checkpoint of a run, or of a directory of checkpoints, and compares all
/// hashes, the oldest first. Calls `tell` with a line for each checkpoint as soon as its
/// result is known. Names a save that never ended or is under way, a checkpoint that was
/// set aside, and one that the run has committed and that is missing or has lost its
/// manifest. A checkpoint of another run, or of another step than its directory's name
/// says, counts as broken. Throws nothing for broken checkpoints.
RunVerdict verify_run(const fs::path& path,
                      const std::function<void(const std::string& line)>& tell);

/// Returns whether `path` is a run or a directory of checkpoints, as verify_run expects.
bool may_be_run(const fs::path& path);

}  // namespace longhaul::checkpoint
