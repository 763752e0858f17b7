#pragma once

#include <cstdint>

#include "longhaul/base/file.h"

namespace longhaul::system {

/// Returns how many bytes of memory this process may take: as many as the kernel calls
/// available, and no more than any of its control groups allows; 0 if that is not known.
/// `root` is the directory with /proc and /sys, for tests.
uint64_t available_memory(const fs::path& root = "/");

/// Keeps freed memory inside the process: activations of a step come and go in large
/// blocks, and giving each back to the kernel costs a page fault per 4 KiB on every step.
/// A program that runs a model calls it once, at its start.
void tune_malloc();

}  // namespace longhaul::system
