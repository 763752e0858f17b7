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
void rope_loop(const T* x, int64_t x_token_stride, int64_t x_head_stride,
               const RopeShape& shape, const float* cos, const float* sin,
               const int32_t* position_ids, bool inverse, T* y, int64_t y_token_stride,
               int64_t y_head_stride) {
  const int64_t half = shape.head_dim / 2;
  const float sign = inverse ? -1.0F : 1.0F;
  const int64_t elements = shape.tokens * shape.heads * shape.head_dim;
#pragma omp parallel for schedule(static) if (elements > kParallelElements)
  for (int64_t t = 0; t < shape.tokens; ++t) {
    const int64_t row = position_ids[t] * half;
    for (int64_t h = 0; h < shape.heads; ++h) {
      rotate_head(x + t * x_token_stride + h * x_head_stride, cos + row, sin + row, sign,
                  half, y + t * y_token_stride + h * y_head_stride);
    }
  }
}

LH_INLINE Vec sigmoid(Vec x) {
  return div(set1(1.0F), add(set1(1.0F), exp(sub(zero(), x))));
}

template <typename T>
void swiglu_forward_loop(const T* gate, const T* up, int64_t row_stride, int64_t rows,
                         int64_t features, T* y) {
#pragma omp parallel for schedule(static) if (rows * features > kParallelElements)
  for (int64_t r = 0; r < rows; ++r) {
    const T* g = gate + r * row_stride;
    const T* u = up + r * row_stride;
    T* out = y + r * features;
    for_lanes(features, [&](int64_t i, auto lanes) {
      const Vec x = load(g + i, lanes);
      store(out + i, mul(mul(x, sigmoid(x)), load(u + i, lanes)), lanes);
    });
  }
}

template <typename T>
void swiglu_backward_loop(const T* dy, const T* gate, const T* up, int64_t row_stride,
                          int64_t rows, int64_t features, T* dgate, T* dup,
                          int64_t d_row_stride) {
#pragma omp parallel for schedule(static) if (rows * features > kParallelElements)
  for (int64_t r = 0; r < rows; ++r) {
    const int64_t in = r * row_stride;
    const int64_t out = r * d_row_stride;
    for_lanes(features, [&](int64_t i, auto lanes) {
      const Vec x = load(gate + in + i, lanes);
      const Vec u = load(up + in + i, lanes);
      const Vec d = load(dy + r * features + i, lanes);
      const Vec s = sigmoid(x);
      const Vec silu = mul(x, s);
      // silu' = s + x s (1 - s)
      const Vec slope = fma(silu, sub(set1(1.0F), s), s);
      store(dgate + out + i, mul(mul(d, u), slope), lanes);
      store(dup + out + i, mul(d, silu), lanes);
    });
  }
}

/// body(begin, end) over fixed blocks of a flat buffer.
template <typename Body>
LH_INLINE void for_blocks(int64_t count, Body body) {
  constexpr int64_t kBlock = 1 << 14;
#pragma omp parallel for schedule(static) if (count > kParallelElements)
  for (int64_t begin = 0; begin < count; begin += kBlock) {
    body(begin, smaller(count, begin + kBlock));
  }
}

template <typename T>
void accumulate_loop(float* sum, const T* x, int64_t count) {
  for_blocks(count, [&](int64_t begin, int64_t end) {
    for_lanes(end - begin, [&](int64_t i, auto lanes) {
      float* at = sum + begin + i;
      store(at, add(load(at, lanes), load(x + begin + i, lanes)), lanes);
    });
  });
}

template <typename From, typename To>
void convert_loop(const From* x, To* y, int64_t count) {
  for_blocks(count, [&](int64_t begin, int64_t end) {
    for_lanes(end - begin, [&](int64_t i, auto lanes) {
      store(y + begin + i, load(x + begin + i, lanes), lanes);
    });
  });
}

}  // namespace
}  // namespace longhaul::kernels
