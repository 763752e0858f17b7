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

/// gradient[rows[i]] += dy[order[i]] for ascending i: each row's tokens one after
/// another. dy [tokens, features]; rows [tokens] ascending, those outside of [0,
/// table_rows) are left out; order [tokens]; gradient [table_rows, features]. A block
/// walks the tokens of a row, so that a token that fills a batch takes the longest.
template <typename T>
struct EmbeddingGradient {
  const T* dy;
  const int64_t *rows, *order;
  int64_t tokens, features, table_rows;
  float* gradient;
};

/// y = gelu(x): x times the normal distribution's share below it, or that by its tanh
/// form. y may be x.
template <typename T>
struct GeluForward {
  const T* x;
  int64_t count;
  bool tanh;
  T* y;
};

/// dx may be dy.
template <typename T>
struct GeluBackward {
  const T *dy, *x;
  int64_t count;
  bool tanh;
  T* dx;
};

/// A part of the keys taken into an attention's result, a row by its log-sum-exp: with
/// now = ln(e^lse + e^part_lse), out = out e^(lse - now) + part e^(part_lse - now) and
/// lse = now; a row that has seen no key so far is 0. part [sequences, queries, heads,
/// dim] and out in the same order, contiguous in a sequence; part_lse [sequences, heads,
/// queries] contiguous, lse with strides.
template <typename T>
struct MergeAttention {
  const T* part;
  const float* part_lse;
  int64_t sequences, queries, heads, head_dim;
  float* out;
  int64_t out_sequence_stride;
  float* lse;
  int64_t lse_sequence_stride, lse_head_stride;
};

template <typename T>
void run(const RmsNormForward<T>& a, Stream stream);
/// `partial`: partial_sums(a) floats. The weight's gradient is added up over parts of the
/// rows first, whose number depends on the size alone.
template <typename T>
void run(const RmsNormBackward<T>& a, float* partial, Stream stream);
template <typename T>
int64_t partial_sums(const RmsNormBackward<T>& a);
template <typename T>
void run(const Rope<T>& a, Stream stream);
template <typename T>
void run(const GatedProductForward<T>& a, Stream stream);
template <typename T>
void run(const GatedProductBackward<T>& a, Stream stream);
template <typename T>
void run(const CrossEntropy<T>& a, Stream stream);
template <typename T>
void run(const CrossEntropyStatistics<T>& a, Stream stream);
template <typename T>
void run(const CrossEntropyGradient<T>& a, Stream stream);
template <typename T>
void run(const EmbeddingGradient<T>& a, Stream stream);
template <typename T>
void run(const GeluForward<T>& a, Stream stream);
template <typename T>
void run(const GeluBackward<T>& a, Stream stream);
template <typename T>
void run(const MergeAttention<T>& a, Stream stream);

}  // namespace longhaul::kernels::cuda
