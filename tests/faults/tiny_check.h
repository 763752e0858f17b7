#pragma once

#include <map>
#include <optional>
#include <string>

#include "tests/faults/tiny_checkpoint.h"

namespace longhaul::faults {

/// What a start would go on from, read whole. Throws when it is not what was saved.
std::optional<TinySave> newest_tiny(const fs::path& run_dir);

/// What is wrong with a run's checkpoints, empty if nothing: each directory with a
/// manifest must be whole, each of `required` (step -> attempt, 0: any) there, and a
/// start must find one that is not older than the newest of them. The lock file must
/// read.
std::string problem_of(const fs::path& run_dir, const std::map<int64_t, int>& required);

}  // namespace longhaul::faults
