#include "longhaul/cluster/watch/memory_limit.h"

#include <algorithm>
#include <string>

#include "longhaul/base/control_groups.h"

namespace longhaul::cluster {

MemoryLimit::MemoryLimit(int64_t pid, const fs::path& root)
    : groups_(control_groups("memory", root, std::to_string(pid))) {
  for (const char* name : {"memory.oom_control", "memory.events"}) {
    for (const fs::path& group : groups_) {
      if (counts_.empty() && is_seen(group / name)) counts_ = group / name;
    }
  }
  before_ = count();
}

int64_t MemoryLimit::count() const {
  return number_behind(counts_, "oom_kill").value_or(before_);
}

int64_t MemoryLimit::kills() const { return std::max<int64_t>(0, count() - before_); }

std::optional<int64_t> MemoryLimit::bytes() const {
  const auto limit = lowest_limit(groups_, kMemoryLimits);
  return limit ? std::optional(limit->number) : std::nullopt;
}

}  // namespace longhaul::cluster
