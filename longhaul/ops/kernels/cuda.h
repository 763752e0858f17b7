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

/// Enqueues a kernel of the lists in arguments.h. `scratch` has room for
/// scratch_floats(kernel) floats.
template <typename Kernel>
void run(const Kernel& kernel, Stream stream, float* scratch = nullptr);
/// Returns the floats that a kernel needs beside its arguments, which depends on its
/// sizes alone.
template <typename Kernel>
int64_t scratch_floats(const Kernel& kernel);

}  // namespace longhaul::kernels::cuda
