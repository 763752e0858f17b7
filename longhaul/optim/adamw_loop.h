#pragma once

// The loop of AdamW, compiled once per instruction set. Everything here has internal
// linkage and nothing is called from elsewhere: an inline function shared with other
// files could be linked from this file's AVX-512 form into all of them.

#include "longhaul/optim/adamw_kernel.h"

namespace longhaul::optim {
namespace {

/// Elements a thread takes at a time.
constexpr int64_t kAdamWBlock = 16384;

[[gnu::always_inline]] inline float get(const float* p, int64_t i) { return p[i]; }
[[gnu::always_inline]] inline float get(const uint16_t* p, int64_t i) {
  return __builtin_bit_cast(float, static_cast<uint32_t>(p[i]) << 16);
}
[[gnu::always_inline]] inline void put(float* p, int64_t i, float x) { p[i] = x; }
[[gnu::always_inline]] inline void put(uint16_t* p, int64_t i, float x) {
  const auto bits = __builtin_bit_cast(uint32_t, x);
  const uint32_t rounded = (bits + 0x7FFFU + ((bits >> 16) & 1U)) >> 16;
  const bool nan = (bits & 0x7FFFFFFFU) > 0x7F800000U;
  p[i] = static_cast<uint16_t>(nan ? (bits >> 16) | 0x40U : rounded);
}
struct NoWeight {};
[[gnu::always_inline]] inline void put(NoWeight*, int64_t, float) {}

template <typename G, typename M, typename W>
void update_block(int64_t begin, int64_t end, const G* __restrict grad,
                  float* __restrict master, M* __restrict exp_avg,
                  M* __restrict exp_avg_sq, W* __restrict weight, const AdamWScalars s) {
  for (int64_t i = begin; i < end; ++i) {
    const float g = get(grad, i) * s.grad_scale;
    const float m0 = get(exp_avg, i);
    const float m = __builtin_fmaf(s.one_minus_beta1, g - m0, m0);
    const float v =
        __builtin_fmaf(s.one_minus_beta2 * g, g, get(exp_avg_sq, i) * s.beta2);
    const float denom = __builtin_sqrtf(v) / s.denom_scale + s.eps;
    float p = master[i] * s.keep;
    p = p - s.step_size * m / denom;
    p = p - s.decay_after * p;
    put(exp_avg, i, m);
    put(exp_avg_sq, i, v);
    master[i] = p;
    put(weight, i, p);
  }
}

template <typename G, typename M, typename W>
void update_range(const AdamWRange& r, const AdamWScalars& s, W* weight) {
  const auto* grad = static_cast<const G*>(r.grad);
  auto* exp_avg = static_cast<M*>(r.exp_avg);
  auto* exp_avg_sq = static_cast<M*>(r.exp_avg_sq);
  const int64_t blocks = (r.count + kAdamWBlock - 1) / kAdamWBlock;
#pragma omp parallel for schedule(static) if (blocks > 1)
  for (int64_t b = 0; b < blocks; ++b) {
    const int64_t begin = b * kAdamWBlock;
    const int64_t end = begin + kAdamWBlock < r.count ? begin + kAdamWBlock : r.count;
    update_block(begin, end, grad, r.master, exp_avg, exp_avg_sq, weight, s);
  }
}

template <typename G, typename M>
void with_weight(const AdamWRange& r, const AdamWScalars& s) {
  if (r.weight == r.master) {
    update_range<G, M>(r, s, static_cast<NoWeight*>(nullptr));
  } else if (r.weight_dtype == DType::F32) {
    update_range<G, M>(r, s, static_cast<float*>(r.weight));
  } else {
    update_range<G, M>(r, s, static_cast<uint16_t*>(r.weight));
  }
}

template <typename G>
void with_moments(const AdamWRange& r, const AdamWScalars& s) {
  if (r.moments_dtype == DType::F32) {
    with_weight<G, float>(r, s);
  } else {
    with_weight<G, uint16_t>(r, s);
  }
}

void adamw_any(const AdamWRange& r, const AdamWScalars& s) {
  if (r.grad_dtype == DType::F32) {
    with_moments<float>(r, s);
  } else {
    with_moments<uint16_t>(r, s);
  }
}

}  // namespace
}  // namespace longhaul::optim
