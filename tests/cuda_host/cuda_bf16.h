#pragma once

// This header stands in for the header of CUDA, as cuda_runtime.h beside it does. It has
// bf16 with CUDA's names and roundings.

#include <bit>
#include <cstdint>

struct __nv_bfloat16 {
  uint16_t bits;
};

inline __nv_bfloat16 __ushort_as_bfloat16(uint16_t bits) { return {bits}; }
inline uint16_t __bfloat16_as_ushort(__nv_bfloat16 x) { return x.bits; }
inline float __bfloat162float(__nv_bfloat16 x) {
  return std::bit_cast<float>(static_cast<uint32_t>(x.bits) << 16);
}
/// Rounds to nearest, ties to even; any NaN becomes the NaN that CUDA makes.
inline __nv_bfloat16 __float2bfloat16_rn(float x) {
  const auto bits = std::bit_cast<uint32_t>(x);
  if ((bits & 0x7FFFFFFFU) > 0x7F800000U) return {0x7FFF};
  return {static_cast<uint16_t>((bits + 0x7FFFU + ((bits >> 16) & 1U)) >> 16)};
}
