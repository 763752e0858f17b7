#pragma once

namespace longhaul::tensor {

/// Sets how tensors on the CPU get memory: freed memory stays in the process
/// (tune_malloc) and is used again, because the memory comes from malloc and is aligned
/// here. LibTorch calls posix_memalign, which in glibc before 2.38 does not reuse aligned
/// blocks (glibc bug 14581): the heap of a step grew to three times the size of the live
/// tensors. Must be called once, at the start of a program that runs a model, before its
/// first tensor.
void tune_cpu_memory();

}  // namespace longhaul::tensor
