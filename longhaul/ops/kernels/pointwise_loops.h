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
void loop(const Rope<T>& a) {
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

/// The value of an activation at x, and its derivative at x.
struct Activated {
  Vec value, slope;
};

/// Returns the tanh form of GELU, as x sigmoid(2u) with u = sqrt(2 / pi) (x + 0.044715
/// x^3).
LH_INLINE Activated gelu_tanh(Vec x) {
  constexpr float kTwice = 1.59576912F;  // 2 sqrt(2 / pi)
  constexpr float kCube = kTwice * 0.044715F;
  // Beyond 10 and -10 the sigmoid is nearly 1 or 0; between them e^-2u is finite.
  const Vec above = max(set1(-10.0F), x);
  const Vec inside = min(set1(10.0F), above);
  const Vec square = mul(inside, inside);
  const Vec twice_u = mul(inside, fma(square, set1(kCube), set1(kTwice)));
  const Vec e = exp(sub(zero(), twice_u));
  const Vec s = div(set1(1.0F), add(set1(1.0F), e));
  const Vec inner = fma(square, set1(3.0F * kCube), set1(kTwice));
  // 1 - s is computed as e s, which loses no digits by cancellation.
  const Vec slope = fma(mul(mul(inside, s), mul(e, s)), inner, s);
  return {mul(above, s), slope};
}

/// Returns GELU. The normal distribution's tail beyond |x| is computed by Abramowitz and
/// Stegun, 7.1.26, within 1e-7.
LH_INLINE Activated gelu_exact(Vec x) {
  constexpr float kRootHalf = 0.707106781F;
  constexpr float kRootHalfOverPi = 0.398942280F;  // sqrt(1 / (2 pi))
  const Vec size = max(sub(zero(), x), x);
  const Vec t = div(set1(1.0F), fma(size, set1(0.3275911F * kRootHalf), set1(1.0F)));
  const Vec e = exp(mul(mul(x, x), set1(-0.5F)));
  Vec p = set1(0.5F * 1.061405429F);
  p = fma(p, t, set1(0.5F * -1.453152027F));
  p = fma(p, t, set1(0.5F * 1.421413741F));
  p = fma(p, t, set1(0.5F * -0.284496736F));
  p = fma(p, t, set1(0.5F * 0.254829592F));
  const Vec beyond = mul(mul(p, t), e);
  const Vec below = select_negative(x, beyond, sub(set1(1.0F), beyond));
  return {mul(x, below), fma(mul(x, set1(kRootHalfOverPi)), e, below)};
}

template <Activation kActivation>
LH_INLINE Activated activated(Vec x) {
  if constexpr (kActivation == Activation::GeluTanh) {
    return gelu_tanh(x);
  } else if constexpr (kActivation == Activation::GeluExact) {
    return gelu_exact(x);
  } else {
    const Vec s = sigmoid(x);
    const Vec silu = mul(x, s);
    // silu' = s + x s (1 - s)
    return {silu, fma(silu, sub(set1(1.0F), s), s)};
  }
}

template <Activation kActivation, bool kWeighed, typename T>
void gated_product_forward_rows(const GatedProductForward<T>& a) {
#pragma omp parallel for schedule(static) if (a.rows * a.features > kParallelElements)
  for (int64_t r = 0; r < a.rows; ++r) {
    const T* gate = a.gate + r * a.row_stride;
    const T* up = a.up + r * a.row_stride;
    T* y = a.y + r * a.features;
    const Vec weight = set1(kWeighed ? a.weights[r] : 1.0F);
    for_lanes(a.features, [=](int64_t i, auto lanes) {
      const Vec value = activated<kActivation>(load(gate + i, lanes)).value;
      const Vec product = mul(value, load(up + i, lanes));
      store(y + i, kWeighed ? mul(product, weight) : product, lanes);
    });
  }
}

template <Activation kActivation, bool kWeighed, typename T>
void gated_product_backward_rows(const GatedProductBackward<T>& a) {
#pragma omp parallel for schedule(static) if (a.rows * a.features > kParallelElements)
  for (int64_t r = 0; r < a.rows; ++r) {
    const T* gate = a.gate + r * a.row_stride;
    const T* up = a.up + r * a.row_stride;
    const T* dy = a.dy + r * a.features;
    T* dgate = a.dgate + r * a.d_row_stride;
    T* dup = a.dup + r * a.d_row_stride;
    const Vec weight = set1(kWeighed ? a.weights[r] : 1.0F);
    Vec sum = zero();
    for_lanes(a.features, [=, &sum](int64_t i, auto lanes) {
      const Vec x = load(gate + i, lanes);
      const Vec u = load(up + i, lanes);
      Vec d = load(dy + i, lanes);
      const auto [value, slope] = activated<kActivation>(x);
      if constexpr (kWeighed) {
        sum = fma(d, mul(value, u), sum);
        d = mul(d, weight);
      }
      store(dgate + i, mul(mul(d, u), slope), lanes);
      store(dup + i, mul(d, value), lanes);
    });
    if constexpr (kWeighed) a.dweights[r] = sum_lanes(sum);
  }
}

template <typename T>
void loop(const GatedProductForward<T>& a) {
  with_activation(a.activation, [&](auto kind) {
    constexpr Activation kActivation = decltype(kind)::value;
    if (a.weights == nullptr) return gated_product_forward_rows<kActivation, false>(a);
    gated_product_forward_rows<kActivation, true>(a);
  });
}

template <typename T>
void loop(const GatedProductBackward<T>& a) {
  with_activation(a.activation, [&](auto kind) {
    constexpr Activation kActivation = decltype(kind)::value;
    if (a.weights == nullptr) return gated_product_backward_rows<kActivation, false>(a);
    gated_product_backward_rows<kActivation, true>(a);
  });
}

template <typename T>
void loop(const GatherRows<T>& a) {
#pragma omp parallel for schedule(static) if (a.rows * a.features > kParallelElements)
  for (int64_t r = 0; r < a.rows; ++r) {
    memcpy(a.y + r * a.y_stride, a.x + a.row[r] * a.x_stride,
           static_cast<size_t>(a.features) * sizeof(T));
  }
}

template <typename T>
void loop(const SumRows<T>& a) {
#pragma omp parallel for schedule(static) if (a.tokens * a.features > kParallelElements)
  for (int64_t t = 0; t < a.tokens; ++t) {
    const int64_t* place = a.place + t * a.each;
    T* y = a.y + t * a.features;
    for_lanes(a.features, [=](int64_t i, auto lanes) {
      Vec sum = load(a.x + place[0] * a.x_stride + i, lanes);
      for (int64_t j = 1; j < a.each; ++j)
        sum = add(sum, load(a.x + place[j] * a.x_stride + i, lanes));
      store(y + i, sum, lanes);
    });
  }
}

/// Converts a flat buffer, in fixed blocks.
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
