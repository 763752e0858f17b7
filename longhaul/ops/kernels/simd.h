#pragma once

// This header has the vectors of the instruction set that the including file is compiled
// for. Only isa_*.cpp and the *_loops.h that isa_*.cpp include may include this header.
// All names are file-local, so that no function built for a stronger set can replace a
// function of a weaker set at link time. Nothing here uses the standard library's
// templates for the same reason.

#include <immintrin.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>

#include "longhaul/ops/kernels/cpu.h"

#define LH_INLINE inline __attribute__((always_inline))

namespace longhaul::kernels {
namespace {

/// All lanes of a vector.
struct Full {};
/// The first `count` lanes; the others load as 0 and are not stored.
struct Part {
  int64_t count;
};

#if defined(__AVX512F__)

using Vec = __m512;
constexpr int64_t kLanes = 16;
constexpr int64_t kVectorRegisters = 32;

LH_INLINE Vec zero() { return _mm512_setzero_ps(); }
LH_INLINE Vec set1(float x) { return _mm512_set1_ps(x); }
LH_INLINE Vec add(Vec a, Vec b) { return _mm512_add_ps(a, b); }
LH_INLINE Vec sub(Vec a, Vec b) { return _mm512_sub_ps(a, b); }
LH_INLINE Vec mul(Vec a, Vec b) { return _mm512_mul_ps(a, b); }
LH_INLINE Vec div(Vec a, Vec b) { return _mm512_div_ps(a, b); }
/// Returns the larger elements, or the second operand's where either is NaN; min() treats
/// NaN in the same way.
LH_INLINE Vec max(Vec a, Vec b) { return _mm512_max_ps(a, b); }
LH_INLINE Vec min(Vec a, Vec b) { return _mm512_min_ps(a, b); }
/// Returns a * b + c; fnma() returns c - a * b.
LH_INLINE Vec fma(Vec a, Vec b, Vec c) { return _mm512_fmadd_ps(a, b, c); }
LH_INLINE Vec fnma(Vec a, Vec b, Vec c) { return _mm512_fnmadd_ps(a, b, c); }
LH_INLINE Vec round(Vec a) {
  return _mm512_roundscale_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
/// Returns a * 2^n for a whole number n.
LH_INLINE Vec scale_by_power(Vec a, Vec n) { return _mm512_scalef_ps(a, n); }
/// Splits a positive normal x into mantissa(x) * 2^exponent(x), where the mantissa is in
/// [3/4, 3/2).
LH_INLINE Vec mantissa(Vec x) {
  return _mm512_getmant_ps(x, _MM_MANT_NORM_p75_1p5, _MM_MANT_SIGN_zero);
}
LH_INLINE Vec exponent(Vec x) {
  return sub(_mm512_getexp_ps(x), _mm512_getexp_ps(mantissa(x)));
}
/// Returns a in the lanes where the sign bit of x is set, else b.
LH_INLINE Vec select_negative(Vec x, Vec a, Vec b) {
  return _mm512_mask_mov_ps(b, _mm512_movepi32_mask(_mm512_castps_si512(x)), a);
}
/// Returns x in the lanes where x is positive infinity or NaN, else y.
LH_INLINE Vec unless_finite(Vec x, Vec y) {
  return _mm512_mask_mov_ps(y, _mm512_cmp_ps_mask(x, set1(__builtin_inff()), _CMP_NLT_UQ),
                            x);
}
LH_INLINE float first_lane(Vec x) { return _mm512_cvtss_f32(x); }

LH_INLINE __mmask16 lane_mask(Part part) {
  return static_cast<__mmask16>((1U << part.count) - 1U);
}
LH_INLINE Vec load(const float* p, Full) { return _mm512_loadu_ps(p); }
LH_INLINE Vec load(const float* p, Part part) {
  return _mm512_maskz_loadu_ps(lane_mask(part), p);
}
LH_INLINE void store(float* p, Vec x, Full) { _mm512_storeu_ps(p, x); }
LH_INLINE void store(float* p, Vec x, Part part) {
  _mm512_mask_storeu_ps(p, lane_mask(part), x);
}
LH_INLINE void store_aligned_past(float* p, Vec x) { _mm512_stream_ps(p, x); }

LH_INLINE Vec widen(__m256i bits) {
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16));
}
/// Rounds to bf16, to nearest even; a NaN becomes a quiet NaN.
LH_INLINE __m256i narrow(Vec x) {
  const __m512i bits = _mm512_castps_si512(x);
  const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
  __m512i y = _mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7FFF)));
  y = _mm512_mask_or_epi32(y, _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q), bits,
                           _mm512_set1_epi32(0x00400000));
  return _mm512_cvtepi32_epi16(_mm512_srli_epi32(y, 16));
}
LH_INLINE Vec load(const Bf16* p, Full) {
  return widen(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
}
LH_INLINE Vec load(const Bf16* p, Part part) {
  return widen(_mm256_maskz_loadu_epi16(lane_mask(part), p));
}
LH_INLINE void store(Bf16* p, Vec x, Full) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), narrow(x));
}
LH_INLINE void store(Bf16* p, Vec x, Part part) {
  _mm256_mask_storeu_epi16(p, lane_mask(part), narrow(x));
}

LH_INLINE float sum_lanes(Vec x) { return _mm512_reduce_add_ps(x); }
LH_INLINE float max_lanes(Vec x) { return _mm512_reduce_max_ps(x); }

/// Returns x in the lanes where low <= index <= high, else `other`.
LH_INLINE Vec select_between(int32_t index, const int32_t* low, const int32_t* high,
                             Vec x, Vec other) {
  const __m512i i = _mm512_set1_epi32(index);
  const __mmask16 inside = _mm512_cmple_epi32_mask(_mm512_loadu_si512(low), i) &
                           _mm512_cmpge_epi32_mask(_mm512_loadu_si512(high), i);
  return _mm512_mask_blend_ps(inside, other, x);
}

/// Unsigned 32-bit words, one per lane. Two neighbouring lanes make 64 bits, of which the
/// even lane is the lower word.
using Words = __m512i;

LH_INLINE Words same_words(uint32_t x) { return _mm512_set1_epi32(static_cast<int>(x)); }
LH_INLINE Words load_words(const uint32_t* p) { return _mm512_loadu_si512(p); }
LH_INLINE Words add_words(Words a, Words b) { return _mm512_add_epi32(a, b); }
/// Returns the 64-bit products of the lower words.
LH_INLINE Words multiply_lower(Words a, Words b) { return _mm512_mul_epu32(a, b); }
/// Moves the upper words to the places of the lower words; the upper words become 0.
LH_INLINE Words upper_words(Words a) { return _mm512_srli_epi64(a, 32); }
LH_INLINE Words exclusive_or(Words a, Words b, Words c) {
  return _mm512_ternarylogic_epi32(a, b, c, 0x96);
}
/// Returns the lower words of `even` as lower words and the lower words of `odd` as upper
/// words.
LH_INLINE Words even_and_odd(Words even, Words odd) {
  return _mm512_mask_blend_epi32(0xAAAA, even, _mm512_slli_epi64(odd, 32));
}
/// Interleaves elements of kBits: a's and b's lower halves of every 128 bits, a's element
/// first; interleave_upper() takes the upper halves.
template <int kBits>
LH_INLINE Words interleave_lower(Words a, Words b) {
  if constexpr (kBits == 32) return _mm512_unpacklo_epi32(a, b);
  return _mm512_unpacklo_epi64(a, b);
}
template <int kBits>
LH_INLINE Words interleave_upper(Words a, Words b) {
  if constexpr (kBits == 32) return _mm512_unpackhi_epi32(a, b);
  return _mm512_unpackhi_epi64(a, b);
}
/// Returns x in the lanes where a >= b, else 0.
LH_INLINE Vec where_at_least(Words a, Words b, Vec x) {
  return _mm512_maskz_mov_ps(_mm512_cmpge_epu32_mask(a, b), x);
}

#else

using Vec = __m256;
constexpr int64_t kLanes = 8;
constexpr int64_t kVectorRegisters = 16;

LH_INLINE Vec zero() { return _mm256_setzero_ps(); }
LH_INLINE Vec set1(float x) { return _mm256_set1_ps(x); }
LH_INLINE Vec add(Vec a, Vec b) { return _mm256_add_ps(a, b); }
LH_INLINE Vec sub(Vec a, Vec b) { return _mm256_sub_ps(a, b); }
LH_INLINE Vec mul(Vec a, Vec b) { return _mm256_mul_ps(a, b); }
LH_INLINE Vec div(Vec a, Vec b) { return _mm256_div_ps(a, b); }
/// Returns the larger elements, or the second operand's where either is NaN; min() treats
/// NaN in the same way.
LH_INLINE Vec max(Vec a, Vec b) { return _mm256_max_ps(a, b); }
LH_INLINE Vec min(Vec a, Vec b) { return _mm256_min_ps(a, b); }
/// Returns a * b + c; fnma() returns c - a * b.
LH_INLINE Vec fma(Vec a, Vec b, Vec c) { return _mm256_fmadd_ps(a, b, c); }
LH_INLINE Vec fnma(Vec a, Vec b, Vec c) { return _mm256_fnmadd_ps(a, b, c); }
LH_INLINE Vec round(Vec a) {
  return _mm256_round_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
/// Returns a * 2^n for a whole number n. Below n = -126 the result is 0; above n = 127 it
/// is a * 2^127.
LH_INLINE Vec scale_by_power(Vec a, Vec n) {
  const Vec bounded = min(set1(127.0F), max(set1(-126.0F), n));
  const __m256i exponent =
      _mm256_add_epi32(_mm256_cvtps_epi32(bounded), _mm256_set1_epi32(127));
  const Vec y = mul(a, _mm256_castsi256_ps(_mm256_slli_epi32(exponent, 23)));
  return _mm256_andnot_ps(_mm256_cmp_ps(n, set1(-126.0F), _CMP_LT_OQ), y);
}
/// Splits a positive normal x into mantissa(x) * 2^exponent(x), where the mantissa is in
/// [3/4, 3/2).
LH_INLINE __m256i exponent_bits(Vec x) {
  constexpr int kLowest = 0x3F400000;  // 3/4
  return _mm256_srai_epi32(
      _mm256_sub_epi32(_mm256_castps_si256(x), _mm256_set1_epi32(kLowest)), 23);
}
LH_INLINE Vec mantissa(Vec x) {
  return _mm256_castsi256_ps(
      _mm256_sub_epi32(_mm256_castps_si256(x), _mm256_slli_epi32(exponent_bits(x), 23)));
}
LH_INLINE Vec exponent(Vec x) { return _mm256_cvtepi32_ps(exponent_bits(x)); }
/// Returns a in the lanes where the sign bit of x is set, else b.
LH_INLINE Vec select_negative(Vec x, Vec a, Vec b) { return _mm256_blendv_ps(b, a, x); }
/// Returns x in the lanes where x is positive infinity or NaN, else y.
LH_INLINE Vec unless_finite(Vec x, Vec y) {
  return _mm256_blendv_ps(y, x, _mm256_cmp_ps(x, set1(__builtin_inff()), _CMP_NLT_UQ));
}
LH_INLINE float first_lane(Vec x) { return _mm256_cvtss_f32(x); }

LH_INLINE __m256i lane_mask(Part part) {
  const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
  return _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(part.count)), lane);
}
LH_INLINE Vec load(const float* p, Full) { return _mm256_loadu_ps(p); }
LH_INLINE Vec load(const float* p, Part part) {
  return _mm256_maskload_ps(p, lane_mask(part));
}
LH_INLINE void store(float* p, Vec x, Full) { _mm256_storeu_ps(p, x); }
LH_INLINE void store(float* p, Vec x, Part part) {
  _mm256_maskstore_ps(p, lane_mask(part), x);
}
LH_INLINE void store_aligned_past(float* p, Vec x) { _mm256_stream_ps(p, x); }

LH_INLINE Vec widen(__m128i bits) {
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bits), 16));
}
/// Rounds to bf16, to nearest even; a NaN becomes a quiet NaN.
LH_INLINE __m128i narrow(Vec x) {
  const __m256i bits = _mm256_castps_si256(x);
  const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
  const __m256i rounded =
      _mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7FFF)));
  const __m256i quiet = _mm256_or_si256(bits, _mm256_set1_epi32(0x00400000));
  const __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(x, x, _CMP_UNORD_Q));
  const __m256i y = _mm256_srli_epi32(_mm256_blendv_epi8(rounded, quiet, nan), 16);
  return _mm_packus_epi32(_mm256_castsi256_si128(y), _mm256_extracti128_si256(y, 1));
}
LH_INLINE Vec load(const Bf16* p, Full) {
  return widen(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
}
LH_INLINE Vec load(const Bf16* p, Part part) {
  uint16_t lanes[kLanes] = {};
  memcpy(lanes, p, static_cast<size_t>(part.count) * sizeof(Bf16));
  return widen(_mm_loadu_si128(reinterpret_cast<const __m128i*>(lanes)));
}
LH_INLINE void store(Bf16* p, Vec x, Full) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), narrow(x));
}
LH_INLINE void store(Bf16* p, Vec x, Part part) {
  uint16_t lanes[kLanes];
  _mm_storeu_si128(reinterpret_cast<__m128i*>(lanes), narrow(x));
  memcpy(p, lanes, static_cast<size_t>(part.count) * sizeof(Bf16));
}

LH_INLINE __m128 fold(Vec x) {
  return _mm_add_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
}
LH_INLINE float sum_lanes(Vec x) {
  __m128 y = fold(x);
  y = _mm_add_ps(y, _mm_movehl_ps(y, y));
  return _mm_cvtss_f32(_mm_add_ss(y, _mm_movehdup_ps(y)));
}
LH_INLINE float max_lanes(Vec x) {
  __m128 y = _mm_max_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
  y = _mm_max_ps(y, _mm_movehl_ps(y, y));
  return _mm_cvtss_f32(_mm_max_ss(y, _mm_movehdup_ps(y)));
}

/// Returns x in the lanes where low <= index <= high, else `other`.
LH_INLINE Vec select_between(int32_t index, const int32_t* low, const int32_t* high,
                             Vec x, Vec other) {
  const __m256i i = _mm256_set1_epi32(index);
  const auto at = [](const int32_t* p) {
    return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
  };
  const __m256i outside =
      _mm256_or_si256(_mm256_cmpgt_epi32(at(low), i), _mm256_cmpgt_epi32(i, at(high)));
  return _mm256_blendv_ps(x, other, _mm256_castsi256_ps(outside));
}

/// Unsigned 32-bit words, one per lane. Two neighbouring lanes make 64 bits, of which the
/// even lane is the lower word.
using Words = __m256i;

LH_INLINE Words same_words(uint32_t x) { return _mm256_set1_epi32(static_cast<int>(x)); }
LH_INLINE Words load_words(const uint32_t* p) {
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
}
LH_INLINE Words add_words(Words a, Words b) { return _mm256_add_epi32(a, b); }
/// Returns the 64-bit products of the lower words.
LH_INLINE Words multiply_lower(Words a, Words b) { return _mm256_mul_epu32(a, b); }
/// Moves the upper words to the places of the lower words; the upper words become 0.
LH_INLINE Words upper_words(Words a) { return _mm256_srli_epi64(a, 32); }
LH_INLINE Words exclusive_or(Words a, Words b, Words c) {
  return _mm256_xor_si256(_mm256_xor_si256(a, b), c);
}
/// Returns the lower words of `even` as lower words and the lower words of `odd` as upper
/// words.
LH_INLINE Words even_and_odd(Words even, Words odd) {
  return _mm256_blend_epi32(even, _mm256_slli_epi64(odd, 32), 0xAA);
}
/// Interleaves elements of kBits: a's and b's lower halves of every 128 bits, a's element
/// first; interleave_upper() takes the upper halves.
template <int kBits>
LH_INLINE Words interleave_lower(Words a, Words b) {
  if constexpr (kBits == 32) return _mm256_unpacklo_epi32(a, b);
  return _mm256_unpacklo_epi64(a, b);
}
template <int kBits>
LH_INLINE Words interleave_upper(Words a, Words b) {
  if constexpr (kBits == 32) return _mm256_unpackhi_epi32(a, b);
  return _mm256_unpackhi_epi64(a, b);
}
/// Returns x in the lanes where a >= b, else 0.
LH_INLINE Vec where_at_least(Words a, Words b, Vec x) {
  const __m256i at_least = _mm256_cmpeq_epi32(_mm256_max_epu32(a, b), a);
  return _mm256_and_ps(x, _mm256_castsi256_ps(at_least));
}

#endif

/// Stores past the caches if the address is aligned: for results that are not read soon.
/// A thread calls fence_past() after its last such store.
LH_INLINE void store_past(float* p, Vec x, Full) {
  if (reinterpret_cast<uintptr_t>(p) % sizeof(Vec) == 0) return store_aligned_past(p, x);
  store(p, x, Full{});
}
LH_INLINE void store_past(float* p, Vec x, Part part) { store(p, x, part); }
LH_INLINE void fence_past() { _mm_sfence(); }

/// Returns 2^x with a relative error of at most 3e-7; NaN stays NaN.
LH_INLINE Vec exp2(Vec x) {
  const Vec n = round(x);
  const Vec f = sub(x, n);
  // This is the Taylor series of 2^f on [-1/2, 1/2].
  Vec p = set1(1.5403530e-4F);
  p = fma(p, f, set1(1.3333558e-3F));
  p = fma(p, f, set1(9.6181291e-3F));
  p = fma(p, f, set1(5.5504109e-2F));
  p = fma(p, f, set1(2.4022651e-1F));
  p = fma(p, f, set1(6.9314718e-1F));
  p = fma(p, f, set1(1.0F));
  return scale_by_power(p, n);
}

constexpr float kLog2E = 1.44269504F;
constexpr float kLn2 = 0.693147181F;

/// Returns e^x with a relative error of at most 4e-7; NaN stays NaN.
LH_INLINE Vec exp(Vec x) {
  // The argument is bounded so that an infinite x leaves a finite remainder.
  const Vec bounded = min(set1(1e4F), max(set1(-1e4F), x));
  const Vec n = round(mul(bounded, set1(kLog2E)));
  Vec r = fnma(n, set1(0.693359375F), bounded);
  r = fnma(n, set1(-2.12194440e-4F), r);
  Vec p = set1(1.9841270e-4F);
  p = fma(p, r, set1(1.3888889e-3F));
  p = fma(p, r, set1(8.3333333e-3F));
  p = fma(p, r, set1(4.1666667e-2F));
  p = fma(p, r, set1(1.6666667e-1F));
  p = fma(p, r, set1(0.5F));
  p = fma(p, r, set1(1.0F));
  p = fma(p, r, set1(1.0F));
  return scale_by_power(p, n);
}

/// Returns the natural log of a positive normal x, with an error of at most 2e-7 times
/// the larger of |log x| and 1. Positive infinity and NaN stay.
LH_INLINE Vec log(Vec x) {
  const Vec m = mantissa(x);
  const Vec s = div(sub(m, set1(1.0F)), add(m, set1(1.0F)));
  const Vec t = mul(s, s);
  // The series below is that of 2 artanh(s), |s| <= 1/5.
  Vec p = set1(2.0F / 9.0F);
  p = fma(p, t, set1(2.0F / 7.0F));
  p = fma(p, t, set1(2.0F / 5.0F));
  p = fma(p, t, set1(2.0F / 3.0F));
  p = fma(p, t, set1(2.0F));
  return unless_finite(x, fma(exponent(x), set1(kLn2), mul(p, s)));
}

/// Calls body(i, lanes) for i = 0, kLanes, ... below count. `lanes` is Full, except for a
/// Part at the end.
template <typename Body>
LH_INLINE void for_lanes(int64_t count, Body body) {
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) body(i, Full{});
  if (i < count) body(i, Part{count - i});
}

LH_INLINE float to_float(float x) { return x; }
LH_INLINE float to_float(Bf16 x) {
  return __builtin_bit_cast(float, static_cast<uint32_t>(x.bits) << 16);
}
/// Returns x rounded to the element type of the pointer, whose value is not used.
LH_INLINE Vec round_to(Vec x, const float*) { return x; }
LH_INLINE Vec round_to(Vec x, const Bf16*) { return widen(narrow(x)); }

LH_INLINE int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }
LH_INLINE int64_t larger(int64_t a, int64_t b) { return a > b ? a : b; }
LH_INLINE int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }
LH_INLINE int64_t round_up(int64_t a, int64_t b) { return ceil_div(a, b) * b; }

/// Work below this many elements is not worth a parallel region.
constexpr int64_t kParallelElements = 1 << 14;

/// Uninitialised memory of a kernel, aligned to a cache line and freed with the object.
template <typename E>
class Scratch {
 public:
  explicit Scratch(int64_t count)
      : memory_(malloc(static_cast<size_t>(count) * sizeof(E) + kAlignment)) {
    if (memory_ == nullptr) fail_of_memory();
    const auto past = reinterpret_cast<uintptr_t>(memory_) % kAlignment;
    data_ = reinterpret_cast<E*>(static_cast<char*>(memory_) + (kAlignment - past));
  }
  ~Scratch() { free(memory_); }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  E* get() const { return data_; }

 private:
  /// The alignment is made by hand: glibc's aligned_alloc does not find freed memory
  /// again, and the heap of a step would grow to three times the live memory.
  static constexpr size_t kAlignment = 64;
  void* memory_;
  E* data_;
};

}  // namespace
}  // namespace longhaul::kernels
