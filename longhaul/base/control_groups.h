#pragma once

#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "longhaul/base/file.h"

namespace longhaul {

/// Returns the directories of a process's control groups for a controller ("cpu",
/// "memory", "pids"), which limit what the process may use. Versions 1 and 2 of control
/// groups are read. The process's own group comes first, and then all groups around it.
/// There may be none. Some directories may be absent: in a container the kernel gives the
/// process's group as the host sees it, while the mount may begin at the container's
/// group. `root` is where /proc and /sys are, for tests.
std::vector<fs::path> control_groups(std::string_view controller,
                                     const fs::path& root = "/",
                                     const std::string& process = "self");

/// A limit, and the file that sets it.
struct GroupLimit {
  int64_t number = 0;
  fs::path file = {};
};
/// Returns the lowest limit that groups have in files of these names; nothing if no group
/// has one. A file without a limit says "max" in version 2 of control groups, and a
/// number near 2^63 in version 1.
std::optional<GroupLimit> lowest_limit(const std::vector<fs::path>& groups,
                                       std::initializer_list<const char*> names);
/// The names of the files that limit memory, in version 2 and in version 1 of control
/// groups.
inline constexpr std::initializer_list<const char*> kMemoryLimits = {
    "memory.max", "memory.limit_in_bytes"};

}  // namespace longhaul
