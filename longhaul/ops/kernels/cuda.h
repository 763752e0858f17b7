#pragma once

#include <cstdint>

#include "longhaul/ops/kernels/cpu.h"

struct CUstream_st;  // what cudaStream_t points to

// The operations as CUDA kernels over raw pointers, with the mathematics and the
// contracts of cpu.h: T is float or Bf16, sums and exponentials are fp32. All pointers
// are device memory. A call only enqueues on `stream` and returns; the buffers stay alive
// and untouched until the stream has passed. Results are repeatable: no atomics on
// floating point. A failed launch throws Error; an error inside a kernel surfaces at the
// next synchronisation.

namespace longhaul::kernels::cuda {

using Stream = CUstream_st*;

template <typename T>
void run(const RmsNormForward<T>& a, Stream stream);
template <typename T>
void run(const RmsNormBackward<T>& a, Stream stream);
template <typename T>
void run(const Rope<T>& a, Stream stream);
template <typename T>
void run(const SwigluForward<T>& a, Stream stream);
template <typename T>
void run(const SwigluBackward<T>& a, Stream stream);
template <typename T>
void run(const CrossEntropy<T>& a, Stream stream);

}  // namespace longhaul::kernels::cuda
