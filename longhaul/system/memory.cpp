#include "longhaul/system/memory.h"

#include <malloc.h>

#include <algorithm>
#include <fstream>
#include <limits>
#include <string>

#include "longhaul/base/control_groups.h"

namespace longhaul::system {

uint64_t available_memory(const fs::path& root) {
  uint64_t available = 0;
  std::ifstream file(root / "proc/meminfo");
  for (std::string name; file >> name;) {
    uint64_t kilobytes = 0;
    if (name == "MemAvailable:" && file >> kilobytes) available = kilobytes * 1024;
    file.ignore(std::numeric_limits<std::streamsize>::max(), '\n');
  }
  for (const fs::path& group : control_groups("memory", root)) {
    for (const char* limit : {"memory.max", "memory.limit_in_bytes"}) {
      uint64_t bytes = 0;
      // In version 2 a group without a limit says "max", which is no number.
      if (std::ifstream(group / limit) >> bytes) available = std::min(available, bytes);
    }
  }
  return available;
}

void tune_malloc() {
  constexpr int kNever = 1 << 30;
  mallopt(M_MMAP_THRESHOLD, kNever);
  mallopt(M_TRIM_THRESHOLD, kNever);
  mallopt(M_TOP_PAD, 64 << 20);
}

}  // namespace longhaul::system
