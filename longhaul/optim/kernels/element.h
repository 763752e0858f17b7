#pragma once

// Each function does its part of an update to one element. The CPU's loops and the CUDA
// kernels use the same functions, so they do the same IEEE operations. `constexpr` lets
// nvcc compile a function for the GPU too. No function has to be a constant expression.
// All functions have internal linkage, since files of several instruction sets include
// this header.

#include <cstdint>

#include "longhaul/base/random.h"
#include "longhaul/optim/kernels/update.h"

namespace longhaul::optim {
namespace {

/// Returns an element of a state or weight as fp32; uint16_t is bf16.
[[gnu::always_inline]] constexpr float widened(float x) { return x; }
[[gnu::always_inline]] constexpr float widened(uint16_t x) {
  return __builtin_bit_cast(float, static_cast<uint32_t>(x) << 16);
}

/// Returns the bf16 of fp32 bits after `added` is added to the bits; NaN stays NaN.
[[gnu::always_inline]] constexpr uint16_t cut_off(uint32_t bits, uint32_t added) {
  const bool nan = (bits & 0x7FFFFFFFU) > 0x7F800000U;
  return static_cast<uint16_t>(nan ? (bits >> 16) | 0x40U : (bits + added) >> 16);
}

/// Rounds to the nearest, ties to even.
[[gnu::always_inline]] constexpr void assign_nearest(float& to, float x) { to = x; }
[[gnu::always_inline]] constexpr void assign_nearest(uint16_t& to, float x) {
  const auto bits = __builtin_bit_cast(uint32_t, x);
  to = cut_off(bits, 0x7FFFU + ((bits >> 16) & 1U));
}

/// Mixes 32 bits by two rounds of multiplications and XORs with shifted bits, which
/// vector units can do.
[[gnu::always_inline]] constexpr uint32_t mixed(uint32_t x) {
  x = (x ^ (x >> 16)) * 0x7FEB352DU;
  x = (x ^ (x >> 15)) * 0x846CA68BU;
  return x ^ (x >> 16);
}

/// Returns the same keys as rounding_keys. Kernels on a GPU call this function, since
/// they cannot call the latter.
constexpr RoundingKeys drawn_keys(uint64_t key, int64_t update, int64_t high) {
  RoundingKeys keys = {};
  for (int of = 0; of < kRoundings; ++of) {
    const auto words =
        philox(key, static_cast<uint64_t>(update),
               static_cast<uint64_t>(high) << 8 | static_cast<uint64_t>(of));
    keys.of[of][0] = words[0];
    keys.of[of][1] = words[1];
  }
  return keys;
}

/// Returns the 16 random bits that are added to the lower half of an fp32 value before
/// this half is cut off. The element's index in its tensor has the lower 32 bits
/// `number`.
template <RoundingOf kOf>
[[gnu::always_inline]] constexpr uint32_t random_bits(uint32_t number,
                                                      const RoundingKeys& keys) {
  return mixed(mixed(number + keys.of[kOf][0]) ^ keys.of[kOf][1]) >> 16;
}

/// Rounds to bf16, up or down at random, so that the mean is x: adds random bits to the
/// lower 16 bits, and then cuts these off.
template <RoundingOf kOf>
[[gnu::always_inline]] constexpr void assign_random(uint16_t& to, float x,
                                                    uint32_t number,
                                                    const RoundingKeys& keys) {
  to = cut_off(__builtin_bit_cast(uint32_t, x), random_bits<kOf>(number, keys));
}
template <RoundingOf kOf>
[[gnu::always_inline]] constexpr void assign_random(float& to, float x, uint32_t,
                                                    const RoundingKeys&) {
  to = x;
}

struct Moments {
  float first, second;
};
/// Returns exp_avg and exp_avg_sq after a gradient.
template <typename Scalars>
[[gnu::always_inline]] constexpr Moments next_moments(float grad, float first,
                                                      float second, const Scalars& s) {
  const float g = grad * s.grad_scale;
  return {__builtin_fmaf(s.one_minus_beta1, g - first, first),
          __builtin_fmaf(s.one_minus_beta2 * g, g, second * s.beta2)};
}

template <typename Scalars>
[[gnu::always_inline]] constexpr float denominator(float second, const Scalars& s) {
  return __builtin_sqrtf(second) / s.denom_scale + s.eps;
}

/// Returns a master after AdamW has moved it.
template <typename Scalars>
[[gnu::always_inline]] constexpr float adamw_moved(float master, float first,
                                                   float second, const Scalars& s) {
  const float denom = denominator(second, s);
  float p = master * s.keep;
  p = p - s.step_size * first / denom;
  return p - s.decay_after * p;
}

/// Returns the direction in which LAMB moves a master. `first` and `second` are the
/// moments as they are stored, already rounded, since the second pass reads the stored
/// moments.
template <typename Scalars>
[[gnu::always_inline]] constexpr float lamb_direction(float master, float first,
                                                      float second, const Scalars& s,
                                                      float decay) {
  return s.step_size * first / denominator(second, s) + decay * master;
}

/// Returns a master after the second pass of LAMB has moved it.
template <typename Scalars>
[[gnu::always_inline]] constexpr float lamb_moved(float master, float first, float second,
                                                  const Scalars& s) {
  return master * s.keep - s.step_size * first / denominator(second, s);
}

/// Returns the scalars of the second pass of LAMB for an lr of `rate` times the lr of the
/// step: the scalars that lamb_apply_scalars makes of the product.
[[gnu::always_inline]] constexpr AdamWScalars at_rate(AdamWScalars s, const LambRate& of,
                                                      double rate) {
  const double lr = rate * of.lr;
  s.keep = static_cast<float>(1.0 - lr * of.decay);
  s.step_size = static_cast<float>(lr / of.correction1);
  return s;
}

/// The number of running sums of a sum of squares: element i is added to the sum
/// i % kSquareLanes, and the sums are added in their order.
constexpr int kSquareLanes = 16;

}  // namespace
}  // namespace longhaul::optim
