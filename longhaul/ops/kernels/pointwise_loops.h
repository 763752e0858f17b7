#pragma once

#include "longhaul/ops/kernels/simd.h"

namespace longhaul::kernels {
namespace {

template <typename T>
LH_INLINE void rotate_head(const T* x, const float* cos, const float* sin, float sign,
                           int64_t half, T* y) {
  const Vec s = set1(sign);
  for_lanes(half, [&](int64_t i, auto lanes) {
    const Vec a = load(x + i, lanes);
    const Vec b = load(x + half + i, lanes);
    const Vec c = load(cos + i, lanes);
    const Vec d = mul(load(sin + i, lanes), s);
    store(y + i, fnma(b, d, mul(a, c)), lanes);
    store(y + half + i, fma(a, d, mul(b, c)), lanes);
  });
}

template <typename T>
void rope_loop(const Rope<T>& a) {
  const int64_t half = a.head_dim / 2;
  const float sign = a.inverse ? -1.0F : 1.0F;
  const int64_t elements = a.tokens * a.heads * a.head_dim;
#pragma omp parallel for schedule(static) if (elements > kParallelElements)
  for (int64_t t = 0; t < a.tokens; ++t) {
    const int64_t row = a.position_ids[t] * half;
    for (int64_t h = 0; h < a.heads; ++h) {
      rotate_head(a.x + t * a.x_token_stride + h * a.x_head_stride, a.cos + row,
                  a.sin + row, sign, half,
                  a.y + t * a.y_token_stride + h * a.y_head_stride);
    }
  }
}

LH_INLINE Vec sigmoid(Vec x) {
  return div(set1(1.0F), add(set1(1.0F), exp(sub(zero(), x))));
}

template <typename T>
void swiglu_forward_loop(const SwigluForward<T>& a) {
#pragma omp parallel for schedule(static) if (a.rows * a.features > kParallelElements)
  for (int64_t r = 0; r < a.rows; ++r) {
    const T* gate = a.gate + r * a.row_stride;
    const T* up = a.up + r * a.row_stride;
    T* y = a.y + r * a.features;
    for_lanes(a.features, [=](int64_t i, auto lanes) {
      const Vec x = load(gate + i, lanes);
      store(y + i, mul(mul(x, sigmoid(x)), load(up + i, lanes)), lanes);
    });
  }
}

template <typename T>
void swiglu_backward_loop(const SwigluBackward<T>& a) {
#pragma omp parallel for schedule(static) if (a.rows * a.features > kParallelElements)
  for (int64_t r = 0; r < a.rows; ++r) {
    const T* gate = a.gate + r * a.row_stride;
    const T* up = a.up + r * a.row_stride;
    const T* dy = a.dy + r * a.features;
    T* dgate = a.dgate + r * a.d_row_stride;
    T* dup = a.dup + r * a.d_row_stride;
    for_lanes(a.features, [=](int64_t i, auto lanes) {
      const Vec x = load(gate + i, lanes);
      const Vec u = load(up + i, lanes);
      const Vec d = load(dy + i, lanes);
      const Vec s = sigmoid(x);
      const Vec silu = mul(x, s);
      // silu' = s + x s (1 - s)
      const Vec slope = fma(silu, sub(set1(1.0F), s), s);
      store(dgate + i, mul(mul(d, u), slope), lanes);
      store(dup + i, mul(d, silu), lanes);
    });
  }
}

/// Over fixed blocks of a flat buffer.
template <typename From, typename To>
void convert_loop(const From* x, To* y, int64_t count) {
  constexpr int64_t kBlock = 1 << 14;
#pragma omp parallel for schedule(static) if (count > kParallelElements)
  for (int64_t begin = 0; begin < count; begin += kBlock) {
    for_lanes(smaller(kBlock, count - begin), [&](int64_t i, auto lanes) {
      store(y + begin + i, load(x + begin + i, lanes), lanes);
    });
  }
}

}  // namespace
}  // namespace longhaul::kernels
