#pragma once

#include <cstdint>

#include "longhaul/base/file.h"

namespace longhaul {

/// How many bytes of memory this process may take: as many as the kernel calls available,
/// and no more than the limit of any of its control groups. 0 where that is not known.
/// `root`: the directory with /proc and /sys, for tests.
uint64_t available_memory(const fs::path& root = "/");

/// Keeps freed memory inside the process: activations of a step come and go in large
/// blocks, and giving each back to the kernel costs a page fault per 4 KiB on every step.
/// Once, at the start of a program that runs a model.
void tune_malloc();

}  // namespace longhaul
