#pragma once

#include "longhaul/ops/kernels/simd.h"

namespace longhaul::kernels {
namespace {

/// Returns the offset of row r; the heads of a token follow each other.
template <typename Norm>
LH_INLINE int64_t start_of_row(const Norm& a, int64_t r, int64_t token_stride) {
  return r / a.heads * token_stride + r % a.heads * a.features;
}

/// Returns the factor of a normed element.
template <RmsForm kForm>
LH_INLINE Vec norm_factor(Vec weight) {
  if constexpr (kForm == RmsForm::OnePlusWeight) return add(set1(1.0F), weight);
  return weight;
}

template <RmsForm kForm, typename T>
LH_INLINE void norm_row(const T* x, const T* weight, float eps, int64_t features, T* y,
                        float* inverse_rms) {
  Vec squares = zero();
  for_lanes(features, [&](int64_t i, auto lanes) {
    const Vec v = load(x + i, lanes);
    squares = fma(v, v, squares);
  });
  const float mean = sum_lanes(squares) / static_cast<float>(features);
  *inverse_rms = 1.0F / __builtin_sqrtf(mean + eps);
  const Vec inverse = set1(*inverse_rms);
  for_lanes(features, [&](int64_t i, auto lanes) {
    Vec normal = mul(load(x + i, lanes), inverse);
    if constexpr (kForm == RmsForm::WeightAfterCast) normal = round_to(normal, x);
    store(y + i, mul(norm_factor<kForm>(load(weight + i, lanes)), normal), lanes);
  });
}

template <typename T>
LH_INLINE void add_row(const T* x, const T* delta, int64_t features, T* sum) {
  for_lanes(features, [&](int64_t i, auto lanes) {
    store(sum + i, add(load(x + i, lanes), load(delta + i, lanes)), lanes);
  });
}

template <RmsForm kForm, typename T>
void rms_norm_forward_rows(const RmsNormForward<T>& a) {
  const int64_t rows = a.tokens * a.heads;
#pragma omp parallel for schedule(static) if (rows * a.features > kParallelElements)
  for (int64_t r = 0; r < rows; ++r) {
    const T* x = a.x + start_of_row(a, r, a.x_token_stride);
    if (a.delta != nullptr) {
      T* sum = a.sum + r * a.features;
      add_row(x, a.delta + r * a.features, a.features, sum);
      x = sum;
    }
    norm_row<kForm>(x, a.weight, static_cast<float>(a.eps), a.features,
                    a.y + r * a.features, a.inverse_rms + r);
  }
}

template <typename T>
void loop(const RmsNormForward<T>& a) {
  switch (a.form) {
    case RmsForm::WeightAfterCast:
      return rms_norm_forward_rows<RmsForm::WeightAfterCast>(a);
    case RmsForm::WeightBeforeCast:
      return rms_norm_forward_rows<RmsForm::WeightBeforeCast>(a);
    case RmsForm::OnePlusWeight:
      return rms_norm_forward_rows<RmsForm::OnePlusWeight>(a);
  }
}

/// Computes dx of one row. Adds the row's part of dweight to partial [features], unless
/// `partial` is null; `dsum` may be null.
template <RmsForm kForm, typename T>
LH_INLINE void norm_backward_row(const T* dy, const T* x, float inverse_rms,
                                 const T* weight, const T* dsum, int64_t features, T* dx,
                                 float* partial) {
  const Vec inverse = set1(inverse_rms);
  Vec dot = zero();
  for_lanes(features, [&](int64_t i, auto lanes) {
    const Vec grad = load(dy + i, lanes);
    const Vec normal = mul(load(x + i, lanes), inverse);
    dot = fma(mul(grad, norm_factor<kForm>(load(weight + i, lanes))), normal, dot);
    if (partial != nullptr) {
      store(partial + i, fma(grad, normal, load(partial + i, lanes)), lanes);
    }
  });
  const Vec mean = set1(sum_lanes(dot) / static_cast<float>(features));
  for_lanes(features, [&](int64_t i, auto lanes) {
    const Vec normal = mul(load(x + i, lanes), inverse);
    const Vec grad =
        mul(load(dy + i, lanes), norm_factor<kForm>(load(weight + i, lanes)));
    Vec own = mul(inverse, fnma(normal, mean, grad));
    if (dsum != nullptr) own = add(own, load(dsum + i, lanes));
    store(dx + i, own, lanes);
  });
}

/// Computes dx, and sums dweight over fixed chunks of rows, then over the chunks in
/// order. The sums do not depend on the number of threads.
template <RmsForm kForm, typename T>
void rms_norm_backward_rows(const RmsNormBackward<T>& a) {
  const int64_t rows = a.tokens * a.heads;
  const int64_t features = a.features;
  float* dweight = a.dweight;
  const int64_t chunk = larger(16, ceil_div(rows, 64));
  const int64_t chunks = ceil_div(rows, chunk);
  const Scratch<float> partials(dweight == nullptr ? 0 : chunks * features);
#pragma omp parallel if (rows * features > kParallelElements)
  {
#pragma omp for schedule(static)
    for (int64_t c = 0; c < chunks; ++c) {
      float* partial = dweight == nullptr ? nullptr : partials.get() + c * features;
      if (partial != nullptr) {
        memset(partial, 0, static_cast<size_t>(features) * sizeof(float));
      }
      const int64_t end = smaller(rows, (c + 1) * chunk);
      for (int64_t r = c * chunk; r < end; ++r) {
        norm_backward_row<kForm>(
            a.dy + r * features, a.x + start_of_row(a, r, a.x_token_stride),
            a.inverse_rms[r], a.weight,
            a.dsum == nullptr ? nullptr : a.dsum + r * features, features,
            a.dx + start_of_row(a, r, a.dx_token_stride), partial);
      }
    }
    if (dweight != nullptr) {
#pragma omp for schedule(static)
      for (int64_t i = 0; i < features; i += kLanes) {
        for_lanes(smaller(kLanes, features - i), [&](int64_t /*zero*/, auto lanes) {
          Vec sum = zero();
          for (int64_t c = 0; c < chunks; ++c) {
            sum = add(sum, load(partials.get() + c * features + i, lanes));
          }
          store(dweight + i, add(load(dweight + i, lanes), sum), lanes);
        });
      }
    }
  }
}

/// Runs the backward of the form. A rounding has no gradient of its own, so that the
/// forms with the weight before and after the cast are the same here.
template <typename T>
void loop(const RmsNormBackward<T>& a) {
  if (a.form == RmsForm::OnePlusWeight) {
    return rms_norm_backward_rows<RmsForm::OnePlusWeight>(a);
  }
  rms_norm_backward_rows<RmsForm::WeightAfterCast>(a);
}

}  // namespace
}  // namespace longhaul::kernels
