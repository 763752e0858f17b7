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
  // Lanes past the end load as 0: the part is taken by itself.
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

/// logits = factor * exp(logits - lse), less `row_scale` at the target.
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
    // From the unrounded softmax, so that the difference is rounded once.
    const Vec p = exp(set1(picked - lse));
    store(logits + target, sub(mul(p, set1(factor)), set1(row_scale)), Part{1});
  }
}

template <typename T>
void cross_entropy_statistics_loop(const T* logits, const int64_t* targets, int64_t rows,
                                   int64_t vocabulary, float* maximum, float* sum_exp,
                                   float* picked) {
#pragma omp parallel for schedule(static) if (rows * vocabulary > kParallelElements)
  for (int64_t r = 0; r < rows; ++r) {
    const T* row = logits + r * vocabulary;
    const RowStatistics s = row_statistics(row, vocabulary);
    maximum[r] = s.maximum;
    sum_exp[r] = s.sum_exp;
    const bool here = targets[r] >= 0 && targets[r] < vocabulary;
    picked[r] = here ? to_float(row[targets[r]]) : 0.0F;
  }
}

template <typename T>
void cross_entropy_gradient_loop(T* logits, const int64_t* targets, int64_t rows,
                                 int64_t vocabulary, const float* lse,
                                 const float* row_scale, double z_loss) {
#pragma omp parallel for schedule(static) if (rows * vocabulary > kParallelElements)
  for (int64_t r = 0; r < rows; ++r) {
    row_gradient(logits + r * vocabulary, targets[r], vocabulary, lse[r], row_scale[r],
                 static_cast<float>(z_loss));
  }
}

template <typename T>
void cross_entropy_loop(T* logits, const int64_t* targets, int64_t rows,
                        int64_t vocabulary, double scale, double z_loss,
                        bool want_gradient, float* cross_entropy, float* squared_lse) {
#pragma omp parallel for schedule(static) if (rows * vocabulary > kParallelElements)
  for (int64_t r = 0; r < rows; ++r) {
    T* row = logits + r * vocabulary;
    const int64_t target = targets[r];
    float lse = 0.0F;
    cross_entropy[r] = 0.0F;
    squared_lse[r] = 0.0F;
    if (target >= 0) {
      const RowStatistics s = row_statistics(row, vocabulary);
      lse = s.maximum + __builtin_logf(s.sum_exp);
      cross_entropy[r] = lse - to_float(row[target]);
      squared_lse[r] = lse * lse;
    }
    if (want_gradient) {
      row_gradient(row, target, vocabulary, lse,
                   target >= 0 ? static_cast<float>(scale) : 0,
                   static_cast<float>(z_loss));
    }
  }
}

}  // namespace
}  // namespace longhaul::kernels
