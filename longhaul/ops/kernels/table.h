#pragma once

#include "longhaul/ops/kernels/cpu.h"

namespace longhaul::kernels {

/// The kernels of one element type, as one instruction set has them (cpu.h documents
/// each).
template <typename T>
struct TypedKernels {
  void (*rms_norm_forward)(const T* x, const T* residual, const T* weight, double eps,
                           int64_t rows, int64_t features, T* h, T* y,
                           float* inverse_rms);
  void (*rms_norm_backward)(const T* dy, const T* x, const float* inverse_rms,
                            const T* weight, const T* dresidual, int64_t rows,
                            int64_t features, T* dx, float* dweight);
  void (*rope)(const T* x, int64_t x_token_stride, int64_t x_head_stride,
               const RopeShape& shape, const float* cos, const float* sin,
               const int32_t* position_ids, bool inverse, T* y, int64_t y_token_stride,
               int64_t y_head_stride);
  void (*swiglu_forward)(const T* gate, const T* up, int64_t row_stride, int64_t rows,
                         int64_t features, T* y);
  void (*swiglu_backward)(const T* dy, const T* gate, const T* up, int64_t row_stride,
                          int64_t rows, int64_t features, T* dgate, T* dup,
                          int64_t d_row_stride);
  void (*attention_forward)(const AttentionShape& shape, const AttentionInput<T>& q,
                            const AttentionInput<T>& k, const AttentionInput<T>& v,
                            const AttentionOutput<T>& out, float* lse);
  void (*attention_backward)(const AttentionShape& shape, const AttentionInput<T>& q,
                             const AttentionInput<T>& k, const AttentionInput<T>& v,
                             const AttentionInput<T>& out, const AttentionInput<T>& dout,
                             const float* lse, const AttentionOutput<T>& dq,
                             const AttentionOutput<T>& dk, const AttentionOutput<T>& dv,
                             int threads);
  void (*attention_forward_part)(const AttentionShape& shape, const AttentionInput<T>& q,
                                 const AttentionInput<T>& k, const AttentionInput<T>& v,
                                 const AttentionOutput<float>& out, float* lse);
  void (*attention_backward_part)(const AttentionShape& shape, const AttentionInput<T>& q,
                                  const AttentionInput<T>& k, const AttentionInput<T>& v,
                                  const AttentionInput<T>& out,
                                  const AttentionInput<T>& dout, const float* lse,
                                  const AttentionOutput<float>& dq,
                                  const AttentionOutput<float>& dk,
                                  const AttentionOutput<float>& dv, int threads);
  void (*cross_entropy_statistics)(const T* logits, const int64_t* targets, int64_t rows,
                                   int64_t vocabulary, float* maximum, float* sum_exp,
                                   float* picked);
  void (*cross_entropy_gradient)(T* logits, const int64_t* targets, int64_t rows,
                                 int64_t vocabulary, const float* lse,
                                 const float* row_scale, double z_loss);
  void (*cross_entropy)(T* logits, const int64_t* targets, int64_t rows,
                        int64_t vocabulary, double scale, double z_loss,
                        bool want_gradient, float* cross_entropy, float* squared_lse);
  void (*accumulate)(float* sum, const T* x, int64_t count);
};

/// All kernels of one instruction set; an absent one is null.
struct KernelTable {
  TypedKernels<float> f32;
  TypedKernels<Bf16> bf16;
  void (*narrow)(const float* x, Bf16* y, int64_t count);
  void (*widen)(const Bf16* x, float* y, int64_t count);
  void (*weight_gradient)(const Bf16* dy, int64_t dy_stride, const Bf16* x,
                          int64_t x_stride, int64_t T, int64_t N, int64_t K, float* grad);
};

// Each in a file of its own with its own compiler flags; call only what the CPU has.
const KernelTable& avx2_kernels();
const KernelTable& avx512_kernels();
const KernelTable& avx512bf16_kernels();

}  // namespace longhaul::kernels
