#pragma once

#include <cstdint>

#include "longhaul/ops/kernels/arguments.h"

struct CUstream_st;  // the struct to which cudaStream_t points

// This header runs the operations as CUDA kernels over raw pointers, with the mathematics
// and the contracts of arguments.h. T is float or Bf16; sums and exponentials are fp32.
// All pointers are device memory. A call only enqueues on `stream` and returns; the
// buffers must stay alive and untouched until the stream has passed the kernel. Results
// are repeatable: no kernel uses atomics on floating point. A failed launch throws Error;
// an error inside a kernel surfaces at the next synchronisation.

namespace longhaul::kernels::cuda {

using Stream = CUstream_st*;

/// Enqueues a kernel of arguments.h other than the attention's and dropout.
template <typename Kernel>
void run(const Kernel& kernel, Stream stream);
/// Enqueues the norm's backward. The weight's gradient is first added up over parts of
/// the rows, whose number depends on the sizes alone; `partial` has room for
/// partial_sums(a) floats.
template <typename T>
void run(const RmsNormBackward<T>& a, float* partial, Stream stream);
template <typename T>
int64_t partial_sums(const RmsNormBackward<T>& a);

}  // namespace longhaul::kernels::cuda
