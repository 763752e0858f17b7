#pragma once

#include "longhaul/ops/kernels/cpu.h"

namespace longhaul::kernels {

/// A kernel as one instruction set has it.
template <typename Kernel>
struct Entry {
  void (*run)(const Kernel&);
};

template <typename... Kernels>
struct Entries : Entry<Kernels>... {};

/// The kernels of one element type.
template <typename T>
using TypedKernels =
    Entries<RmsNormForward<T>, RmsNormBackward<T>, Rope<T>, GatedProductForward<T>,
            GatedProductBackward<T>, AttentionForward<T>, AttentionBackward<T>,
            AttentionForward<T, Results::GoOn>, AttentionBackward<T, Results::GoOn>,
            CrossEntropyStatistics<T>, CrossEntropyGradient<T>, CrossEntropy<T>,
            Dropout<T>>;

/// All kernels of one instruction set; an absent one is null.
struct KernelTable : TypedKernels<float>, TypedKernels<Bf16>, Entry<Product> {
  void (*narrow)(const float* x, Bf16* y, int64_t count);
  void (*widen)(const Bf16* x, float* y, int64_t count);
  void (*weight_gradient)(const Bf16* dy, int64_t dy_stride, const Bf16* x,
                          int64_t x_stride, int64_t T, int64_t N, int64_t K, float* grad);
};

// Each in a file of its own with its own compiler flags; call only what the CPU has.
const KernelTable& avx2_kernels();
const KernelTable& avx512_kernels();
const KernelTable& avx512bf16_kernels();
const KernelTable& amx_kernels();

}  // namespace longhaul::kernels
