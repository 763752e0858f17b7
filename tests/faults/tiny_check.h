#pragma once

#include <map>
#include <optional>
#include <string>

#include "tests/faults/tiny_checkpoint.h"

namespace longhaul::faults {

/// Reads the checkpoint that a start would go on from. Throws when its content is not
/// what was saved.
std::optional<TinySave> newest_tiny(const fs::path& run_dir);

/// Returns what is wrong with a run's checkpoints; empty if nothing is. Each directory
/// with a manifest must be whole. Each checkpoint of `required` (step -> attempt, 0: any)
/// must be there, and a start must find a checkpoint that is not older than the newest of
/// `required`. The lock file must be readable.
std::string problem_of(const fs::path& run_dir, const std::map<int64_t, int>& required);

}  // namespace longhaul::faults
