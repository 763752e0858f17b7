#pragma once

#include "longhaul/ops/kernels/simd.h"

namespace longhaul::kernels {
namespace {

struct RowStatistics {
  float maximum;
  float sum_exp;
};

template <typename T>
LH_INLINE RowStatistics row_statistics(const T* logits, int64_t vocabulary) {
  // Lanes past the end would load as 0 and count as logits: the last elements are taken
  // one by one.
  const int64_t whole = vocabulary / kLanes * kLanes;
  Vec most = set1(-__builtin_inff());
  for (int64_t i = 0; i < whole; i += kLanes) most = max(most, load(logits + i, Full{}));
  float maximum = max_lanes(most);
  for (int64_t i = whole; i < vocabulary; ++i) {
    const float x = to_float(logits[i]);
    if (x > maximum) maximum = x;
  }
  const Vec base = set1(maximum);
  Vec sums = zero();
  for (int64_t i = 0; i < whole; i += kLanes) {
    sums = add(sums, exp(sub(load(logits + i, Full{}), base)));
  }
  float sum = sum_lanes(sums);
  for (int64_t i = whole; i < vocabulary; ++i) {
    sum += __builtin_expf(to_float(logits[i]) - maximum);
  }
  return {maximum, sum};
}

/// Replaces logits by factor * exp(logits - lse), less `row_scale` at the target, where
/// factor = row_scale (1 + 2 z_loss lse).
template <typename T>
LH_INLINE void row_gradient(T* logits, int64_t target, int64_t vocabulary, float lse,
                            float row_scale, float z_loss) {
  if (row_scale == 0.0F) {
    memset(static_cast<void*>(logits), 0, static_cast<size_t>(vocabulary) * sizeof(T));
    return;
  }
  const float factor = row_scale * (1.0F + 2.0F * z_loss * lse);
  const bool here = target >= 0 && target < vocabulary;
  const float picked = here ? to_float(logits[target]) : 0.0F;
  const Vec base = set1(lse);
  for_lanes(vocabulary, [&](int64_t i, auto lanes) {
    const Vec p = exp(sub(load(logits + i, lanes), base));
    store(logits + i, mul(p, set1(factor)), lanes);
  });
  if (here) {
    // The target uses the unrounded softmax, so that the difference is rounded once.
    const Vec p = exp(set1(picked - lse));
    store(logits + target, sub(mul(p, set1(factor)), set1(row_scale)), Part{1});
  }
}

template <typename T>
void loop(const CrossEntropyStatistics<T>& a) {
#pragma omp parallel for schedule(static) if (a.rows * a.vocabulary > kParallelElements)
  for (int64_t r = 0; r < a.rows; ++r) {
    const T* row = a.logits + r * a.vocabulary;
    const int64_t target = a.targets[r];
    const RowStatistics s = row_statistics(row, a.vocabulary);
    a.maximum[r] = s.maximum;
    a.sum_exp[r] = s.sum_exp;
    const bool here = target >= 0 && target < a.vocabulary;
    a.picked[r] = here ? to_float(row[target]) : 0.0F;
  }
}

template <typename T>
void loop(const CrossEntropyGradient<T>& a) {
#pragma omp parallel for schedule(static) if (a.rows * a.vocabulary > kParallelElements)
  for (int64_t r = 0; r < a.rows; ++r) {
    row_gradient(a.logits + r * a.vocabulary, a.targets[r], a.vocabulary, a.lse[r],
                 a.row_scale[r], static_cast<float>(a.z_loss));
  }
}

template <typename T>
void loop(const CrossEntropy<T>& a) {
#pragma omp parallel for schedule(static) if (a.rows * a.vocabulary > kParallelElements)
  for (int64_t r = 0; r < a.rows; ++r) {
    T* row = a.logits + r * a.vocabulary;
    const int64_t target = a.targets[r];
    float lse = 0.0F;
    a.cross_entropy[r] = 0.0F;
    a.squared_lse[r] = 0.0F;
    if (target >= 0) {
      const RowStatistics s = row_statistics(row, a.vocabulary);
      lse = s.maximum + first_lane(log(set1(s.sum_exp)));
      a.cross_entropy[r] = lse - to_float(row[target]);
      a.squared_lse[r] = lse * lse;
    }
    if (a.want_gradient) {
      row_gradient(row, target, a.vocabulary, lse,
                   target >= 0 ? static_cast<float>(a.scale) : 0,
                   static_cast<float>(a.z_loss));
    }
  }
}

}  // namespace
}  // namespace longhaul::kernels
