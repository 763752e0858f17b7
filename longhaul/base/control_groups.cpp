#include "longhaul/base/control_groups.h"

#include <fstream>

namespace longhaul {

std::vector<fs::path> control_groups(std::string_view controller, const fs::path& root,
                                     const std::string& process) {
  std::vector<fs::path> directories;
  const auto add = [&](const fs::path& mount, fs::path path) {
    for (path = path.relative_path(); !path.empty(); path = path.parent_path()) {
      directories.push_back(mount / path);
    }
    directories.push_back(mount);
  };
  // A line is "0::/path" in version 2, and "4:cpu,cpuacct:/path" in version 1.
  std::ifstream groups(root / "proc" / process / "cgroup");
  for (std::string line; std::getline(groups, line);) {
    const size_t first = line.find(':');
    const size_t second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string kinds = "," + line.substr(first + 1, second - first - 1) + ",";
    const fs::path path = line.substr(second + 1);
    if (kinds == ",,") {
      add(root / "sys/fs/cgroup", path);
    } else if (kinds.find("," + std::string(controller) + ",") != std::string::npos) {
      add(root / "sys/fs/cgroup" / controller, path);
    }
  }
  return directories;
}

std::optional<GroupLimit> lowest_limit(const std::vector<fs::path>& groups,
                                       std::initializer_list<const char*> names) {
  GroupLimit least{.number = int64_t{1} << 60};
  for (const fs::path& group : groups) {
    for (const char* name : names) {
      const auto limit = number_behind(group / name);
      if (limit && *limit < least.number) least = {*limit, group / name};
    }
  }
  return least.file.empty() ? std::nullopt : std::optional(least);
}

}  // namespace longhaul
