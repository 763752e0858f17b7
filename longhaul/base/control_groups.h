#pragma once

#include <string_view>
#include <vector>

#include "longhaul/base/file.h"

namespace longhaul {

/// Returns the directories of the control groups that limit what this process has of a
/// controller ("cpu", "memory", "pids"): its own group and all groups around it, in
/// version 1 and in version 2. There may be none. `root` is where /proc and /sys are, for
/// tests.
std::vector<fs::path> control_groups(std::string_view controller,
                                     const fs::path& root = "/");

}  // namespace longhaul
