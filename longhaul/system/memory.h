#pragma once

#include <cstdint>

#include "longhaul/base/file.h"

namespace longhaul {

/// Bytes that this process may take beside what others have: what the kernel says is
/// available, and no more than its control groups allow in all. 0 where that is not
/// known. `root`: where /proc and /sys are, for tests.
uint64_t available_memory(const fs::path& root = "/");

/// Keeps freed memory inside the process: activations of a step come and go in large
/// blocks, and giving each back to the kernel costs a page fault per 4 KiB on every step.
/// Once, at the start of a program that runs a model.
void tune_malloc();

}  // namespace longhaul
