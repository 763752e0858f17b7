#pragma once

#include <cstdint>

#include "longhaul/ops/kernels/cpu.h"

struct CUstream_st;  // what cudaStream_t points to

// The operations as CUDA kernels over raw pointers, with the mathematics and the
// contracts of cpu.h: T is float or Bf16, sums and exponentials are fp32. All pointers
// are device memory. A call only enqueues on `stream` and returns; the buffers stay alive
// and untouched until the stream has passed. Results are repeatable: no atomics on
// floating point. A failed launch throws Error; an error inside a kernel surfaces at the
// next synchronisation. no_cuda.cpp stands in where CUDA is not built: every function
// throws.

namespace longhaul::kernels::cuda {

using Stream = CUstream_st*;

template <typename T>
void rms_norm_forward(const T* x, const T* residual, const T* weight, double eps,
                      int64_t rows, int64_t features, T* h, T* y, float* inverse_rms,
                      Stream stream);
template <typename T>
void rms_norm_backward(const T* dy, const T* x, const float* inverse_rms, const T* weight,
                       const T* dresidual, int64_t rows, int64_t features, T* dx,
                       float* dweight, Stream stream);

template <typename T>
void rope(const T* x, int64_t x_token_stride, int64_t x_head_stride,
          const RopeShape& shape, const float* cos, const float* sin,
          const int32_t* position_ids, bool inverse, T* y, int64_t y_token_stride,
          int64_t y_head_stride, Stream stream);

template <typename T>
void swiglu_forward(const T* gate, const T* up, int64_t row_stride, int64_t rows,
                    int64_t features, T* y, Stream stream);
template <typename T>
void swiglu_backward(const T* dy, const T* gate, const T* up, int64_t row_stride,
                     int64_t rows, int64_t features, T* dgate, T* dup,
                     int64_t d_row_stride, Stream stream);

template <typename T>
void cross_entropy(T* logits, const int64_t* targets, int64_t rows, int64_t vocabulary,
                   double scale, double z_loss, bool want_gradient, float* cross_entropy,
                   float* squared_lse, Stream stream);

}  // namespace longhaul::kernels::cuda
