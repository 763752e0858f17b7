#include "longhaul/cluster/watch/memory_limit.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <string>

#include "longhaul/base/numbers.h"

namespace longhaul::cluster {
namespace {

/// v1 has no word for "none": it writes the largest multiple of a page.
constexpr int64_t kNoLimit = int64_t{1} << 60;

/// Returns the path behind a cgroup's line of /proc/PID/cgroup, "4:memory:/a" for v1 and
/// "0::/a" for v2.
std::optional<std::string> path_of(const std::string& line, bool unified) {
  const size_t first = line.find(':');
  const size_t second = first == std::string::npos ? first : line.find(':', first + 1);
  if (second == std::string::npos) return std::nullopt;
  const std::string controllers = "," + line.substr(first + 1, second - first - 1) + ",";
  const bool fits = unified ? line.starts_with("0::")
                            : controllers.find(",memory,") != std::string::npos;
  return fits ? std::optional(line.substr(second + 1)) : std::nullopt;
}

/// Returns the number behind a word at the start of a line.
std::optional<int64_t> number_in(const fs::path& file, const std::string& word) {
  std::ifstream lines(file);
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with(word + " ")) {
      return whole_number<int64_t>(std::string_view(line).substr(word.size() + 1));
    }
  }
  return std::nullopt;
}

std::optional<int64_t> number_of(const fs::path& file) {
  std::ifstream lines(file);
  std::string line;
  std::getline(lines, line);
  return whole_number<int64_t>(line);
}

}  // namespace

MemoryLimit::MemoryLimit(int64_t pid, fs::path root) {
  for (const bool unified : {false, true}) {
    const fs::path top = root / (unified ? "sys/fs/cgroup" : "sys/fs/cgroup/memory");
    std::ifstream lines(root / fmt::format("proc/{}/cgroup", pid));
    for (std::string line; std::getline(lines, line);) {
      const auto path = path_of(line, unified);
      if (!path) continue;
      const char* const counts = unified ? "memory.events" : "memory.oom_control";
      // In a container the mount may begin at the container's group, while the process's
      // group is written as the host sees it.
      for (const fs::path& group : {top / fs::path(*path).relative_path(), top}) {
        if (!group_.empty() || !is_seen(group / counts)) continue;
        top_ = top;
        group_ = group;
        unified_ = unified;
      }
    }
  }
  before_ = count();
}

int64_t MemoryLimit::count() const {
  if (group_.empty()) return 0;
  const fs::path file = group_ / (unified_ ? "memory.events" : "memory.oom_control");
  return number_in(file, "oom_kill").value_or(before_);
}

int64_t MemoryLimit::kills() const { return std::max<int64_t>(0, count() - before_); }

std::optional<int64_t> MemoryLimit::bytes() const {
  std::optional<int64_t> lowest;
  if (group_.empty()) return lowest;
  for (fs::path group = group_;; group = group.parent_path()) {
    const auto limit =
        number_of(group / (unified_ ? "memory.max" : "memory.limit_in_bytes"));
    if (limit && *limit < kNoLimit) lowest = std::min(*limit, lowest.value_or(*limit));
    if (group == top_ || !group.has_relative_path()) return lowest;
  }
}

}  // namespace longhaul::cluster
