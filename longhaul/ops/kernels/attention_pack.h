#pragma once

#include "longhaul/ops/kernels/tile.h"

// The attention's products read three layouts, which are cut from rows [token][D] of one
// head. Elements are floats or pairs of bf16 (tile.h); padding is 0.

namespace longhaul::kernels {
namespace {

LH_INLINE void put(float* to, float x0, float /*x1*/) { *to = x0; }
LH_INLINE void put(float* to, Bf16 x0, Bf16 /*x1*/) { *to = to_float(x0); }
#if defined(__AVX512BF16__)
LH_INLINE void put(Pair* to, Bf16 x0, Bf16 x1) { *to = Element<Pair>::make(x0, x1); }
#endif

/// Packs out[j][d] as [padded][dim / kPair]; an element holds neighbours in d.
template <typename E, typename T>
void pack_rows(const T* x, int64_t stride, int64_t count, int64_t padded, int64_t dim,
               E* out) {
  constexpr int64_t kPair = Element<E>::kPair;
  const int64_t width = dim / kPair;
  for (int64_t j = 0; j < count; ++j) {
    for (int64_t d = 0; d < width; ++d) {
      const T* at = x + j * stride + d * kPair;
      put(out + j * width + d, at[0], at[kPair - 1]);
    }
  }
  memset(static_cast<void*>(out + count * width), 0,
         static_cast<size_t>((padded - count) * width) * sizeof(E));
}

/// Packs out[j][d] as [padded / kPair][padded_dim]; an element holds neighbours in j.
template <typename E, typename T>
void pack_pairs(const T* x, int64_t stride, int64_t count, int64_t padded, int64_t dim,
                int64_t padded_dim, E* out) {
  constexpr int64_t kPair = Element<E>::kPair;
  for (int64_t j = 0; j < padded; j += kPair) {
    E* to = out + j / kPair * padded_dim;
    const T* x0 = x + j * stride;
    if (j + kPair <= count) {
      const T* x1 = x0 + (kPair - 1) * stride;
      for (int64_t d = 0; d < dim; ++d) put(to + d, x0[d], x1[d]);
    } else if (j < count) {
      for (int64_t d = 0; d < dim; ++d) put(to + d, x0[d], T{});
    } else {
      memset(static_cast<void*>(to), 0, static_cast<size_t>(dim) * sizeof(E));
    }
    memset(static_cast<void*>(to + dim), 0,
           static_cast<size_t>(padded_dim - dim) * sizeof(E));
  }
}

/// Packs out[d][q] as [dim / kPair][padded], the transpose of pack_rows(); an element
/// holds neighbours in d.
template <typename E, typename T>
void pack_columns(const T* x, int64_t stride, int64_t count, int64_t padded, int64_t dim,
                  int64_t out_stride, E* out) {
  constexpr int64_t kPair = Element<E>::kPair;
  for (int64_t d = 0; d < dim / kPair; ++d) {
    E* to = out + d * out_stride;
    for (int64_t q = 0; q < count; ++q) {
      const T* at = x + q * stride + d * kPair;
      put(to + q, at[0], at[kPair - 1]);
    }
    memset(static_cast<void*>(to + count), 0,
           static_cast<size_t>(padded - count) * sizeof(E));
  }
}

/// Writes kPair rows of probabilities as the products read them. `pairs` gets one row of
/// elements, which hold neighbours in the row index. `rows`, unless null, gets kPair rows
/// of elements, `row_stride` elements apart, which hold neighbours in the lanes.
LH_INLINE void put_probabilities(const Vec* p, float* pairs, float* rows,
                                 int64_t /*row_stride*/) {
  store(pairs, p[0], Full{});
  if (rows != nullptr) store(rows, p[0], Full{});
}
#if defined(__AVX512BF16__)
LH_INLINE void put_probabilities(const Vec* p, Pair* pairs, Pair* rows,
                                 int64_t row_stride) {
  const auto both = reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(p[1], p[0]));
  const __m512i low = _mm512_cvtepu16_epi32(_mm512_castsi512_si256(both));
  const __m512i high = _mm512_cvtepu16_epi32(_mm512_extracti64x4_epi64(both, 1));
  _mm512_storeu_si512(pairs, _mm512_or_si512(low, _mm512_slli_epi32(high, 16)));
  if (rows == nullptr) return;
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(rows), _mm512_castsi512_si256(both));
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(rows + row_stride),
                      _mm512_extracti64x4_epi64(both, 1));
}
#endif

}  // namespace
}  // namespace longhaul::kernels
