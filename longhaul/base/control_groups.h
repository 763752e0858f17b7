#pragma once

#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "longhaul/base/file.h"

namespace longhaul {

/// Returns the directories of the control groups that limit what a process has of a
/// controller ("cpu", "memory", "pids"), in version 1 and in version 2. The process's own
/// group comes first, and then all groups around it. There may be none. In a container a
/// mount may begin at the container's group, while the process's group is written as the
/// host sees it: so directories may be absent. `root` is where /proc and /sys are, for
/// tests.
std::vector<fs::path> control_groups(std::string_view controller,
                                     const fs::path& root = "/",
                                     const std::string& process = "self");

/// A limit, and the file that sets it.
struct GroupLimit {
  int64_t number = 0;
  fs::path file = {};
};
/// Returns the lowest limit that groups have in files of these names; nothing where no
/// group has one: version 2 says "max" there, and version 1 a number near 2^63.
std::optional<GroupLimit> lowest_limit(const std::vector<fs::path>& groups,
                                       std::initializer_list<const char*> names);
/// The names of the files for memory, in version 2 and in version 1.
inline constexpr std::initializer_list<const char*> kMemoryLimits = {
    "memory.max", "memory.limit_in_bytes"};

}  // namespace longhaul
