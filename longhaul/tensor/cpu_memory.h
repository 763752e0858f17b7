#pragma once

namespace longhaul {

/// Memory of tensors on the CPU: freed memory stays in the process (tune_malloc), and is
/// found again, since it comes from malloc and is aligned here. LibTorch calls
/// posix_memalign, which in glibc before 2.38 passes over the blocks that it gave before
/// (its bug 14581): the heap of a step grew to three times what lives. Once, at the start
/// of a program that runs a model, before its first tensor.
void tune_cpu_memory();

}  // namespace longhaul
