#include "longhaul/system/memory.h"

#include <malloc.h>

namespace longhaul {

void tune_malloc() {
  constexpr int kNever = 1 << 30;
  mallopt(M_MMAP_THRESHOLD, kNever);
  mallopt(M_TRIM_THRESHOLD, kNever);
  mallopt(M_TOP_PAD, 64 << 20);
}

}  // namespace longhaul
