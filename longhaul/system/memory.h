#pragma once

namespace longhaul {

/// Keeps freed memory inside the process: activations of a step come and go in large
/// blocks, and giving each back to the kernel costs a page fault per 4 KiB on every step.
/// Once, at the start of a program that runs a model.
void tune_malloc();

}  // namespace longhaul
