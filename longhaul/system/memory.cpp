#include "longhaul/system/memory.h"

#include <malloc.h>

#include <algorithm>

#include "longhaul/base/control_groups.h"

namespace longhaul::system {

uint64_t available_memory(const fs::path& root) {
  const int64_t available =
      number_behind(root / "proc/meminfo", "MemAvailable:").value_or(0);
  const auto limit = lowest_limit(control_groups("memory", root), kMemoryLimits);
  return uint64_t(limit ? std::min(available, limit->number) : available);
}

void tune_malloc() {
  constexpr int kNever = 1 << 30;
  mallopt(M_MMAP_THRESHOLD, kNever);
  mallopt(M_TRIM_THRESHOLD, kNever);
  mallopt(M_TOP_PAD, 64 << 20);
}

}  // namespace longhaul::system
