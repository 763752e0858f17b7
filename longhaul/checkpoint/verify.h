#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "longhaul/base/file.h"

namespace longhaul::checkpoint {

/// What verifying all checkpoints of a run came to.
struct RunVerdict {
  int64_t whole = 0;
  uint64_t bytes = 0;                ///< that were read of whole ones
  std::vector<std::string> broken;   ///< what is wrong with each of the others
  std::vector<std::string> unasked;  ///< read errors that may pass: nothing is known
};

/// Reads every checkpoint of a run, or of a directory of checkpoints, and compares all
/// hashes, the oldest first. `tell` gets a line for each as soon as it is known, and for
/// what else looks like one: a save that never ended or is under way, a checkpoint that
/// was set aside, and the run's newest one where that is missing. Nothing is thrown for
/// what is broken.
RunVerdict verify_run(const fs::path& path,
                      const std::function<void(const std::string& line)>& tell);

/// Whether `path` is a run or a directory of checkpoints: verify_run has something to
/// say.
bool may_be_run(const fs::path& path);

}  // namespace longhaul::checkpoint
