#pragma once

#include "longhaul/ops/kernels/simd.h"

// This header packs blocks of 32 x 32 bf16 values for instructions that multiply pairs of
// neighbours in the summed dim. It needs AVX-512.

namespace longhaul::kernels {
namespace {

constexpr int64_t kTileBlock = 32;  ///< rows, columns and summed elements of a block
constexpr int64_t kRegisterRows = 16;
constexpr int64_t kRegisterWords = 16;  ///< words of 32 bits in a row

/// A block of 32 x 32 values of a matrix with contiguous rows, as the put functions below
/// read it. Only `rows` and `columns` of the block exist in the matrix; the other values
/// are 0.
class SourceBlock {
 public:
  SourceBlock(const Bf16* x, int64_t stride, int64_t rows, int64_t columns)
      : data_(x), stride_(stride) {
    if (rows >= kTileBlock && columns >= kTileBlock) return;
    const __mmask32 mask = columns >= kTileBlock ? ~0U : (1U << larger(columns, 0)) - 1U;
    for (int64_t i = 0; i < kTileBlock; ++i) {
      _mm512_store_si512(copy_ + i * kTileBlock,
                         i < rows ? _mm512_maskz_loadu_epi16(mask, x + i * stride)
                                  : _mm512_setzero_si512());
    }
    data_ = copy_;
    stride_ = kTileBlock;
  }
  SourceBlock(const SourceBlock&) = delete;
  SourceBlock& operator=(const SourceBlock&) = delete;

  const Bf16* row(int64_t i) const { return data_ + i * stride_; }
  int64_t stride() const { return stride_; }

 private:
  const Bf16* data_;
  int64_t stride_;
  alignas(64) Bf16 copy_[kTileBlock * kTileBlock];
};

/// Loads 16 bytes of each of four rows that are `stride` bytes apart.
LH_INLINE __m512i load_quarters(const void* x, int64_t stride) {
  const auto at = [&](int64_t i) {
    return _mm_loadu_si128(
        reinterpret_cast<const __m128i*>(static_cast<const char*>(x) + i * stride));
  };
  __m512i y = _mm512_castsi128_si512(at(0));
  y = _mm512_inserti32x4(y, at(1), 1);
  y = _mm512_inserti32x4(y, at(2), 2);
  return _mm512_inserti32x4(y, at(3), 3);
}

/// Transposes 16 x 16 words: out[w][i] becomes word w of row i. `stride` counts bytes of
/// x, `out_stride` words of out.
LH_INLINE void turn_words(const void* x, int64_t stride, uint32_t* out,
                          int64_t out_stride) {
  for (int64_t w = 0; w < kRegisterWords; w += 4) {
    const char* from = static_cast<const char*>(x) + w * 4;
    // Quarter i of y[r] holds words of row 4 i + r.
    __m512i y[4];
#pragma GCC unroll 4
    for (int64_t r = 0; r < 4; ++r) y[r] = load_quarters(from + r * stride, 4 * stride);
    const __m512i a = _mm512_unpacklo_epi32(y[0], y[1]);
    const __m512i b = _mm512_unpacklo_epi32(y[2], y[3]);
    const __m512i c = _mm512_unpackhi_epi32(y[0], y[1]);
    const __m512i d = _mm512_unpackhi_epi32(y[2], y[3]);
    uint32_t* to = out + w * out_stride;
    _mm512_storeu_si512(to, _mm512_unpacklo_epi64(a, b));
    _mm512_storeu_si512(to + out_stride, _mm512_unpackhi_epi64(a, b));
    _mm512_storeu_si512(to + 2 * out_stride, _mm512_unpacklo_epi64(c, d));
    _mm512_storeu_si512(to + 3 * out_stride, _mm512_unpackhi_epi64(c, d));
  }
}

// The functions below pack a block, as a left or a right factor, from a plain or a
// transposed matrix. `stride` and `second`, the offset of the second register, count
// words of out.

/// Packs a left factor from its rows: out[i] becomes row i.
inline void put_rows(const SourceBlock& x, uint32_t* out, int64_t stride) {
  for (int64_t i = 0; i < kTileBlock; ++i)
    _mm512_storeu_si512(out + i * stride, _mm512_loadu_si512(x.row(i)));
}

/// Packs a left factor from its transpose x[k][i]: out[i] becomes column i.
inline void put_columns(const SourceBlock& x, uint32_t* out, int64_t stride) {
  const int64_t bytes = x.stride() * static_cast<int64_t>(sizeof(Bf16));
  for (int64_t i = 0; i < kTileBlock; i += 8) {
    // Quarter j of y[r] holds eight columns of row 8 j + r.
    __m512i y[8];
#pragma GCC unroll 8
    for (int64_t r = 0; r < 8; ++r) y[r] = load_quarters(x.row(r) + i, 8 * bytes);
    __m512i twos[8];
#pragma GCC unroll 4
    for (int64_t r = 0; r < 4; ++r) {
      twos[r] = _mm512_unpacklo_epi16(y[2 * r], y[2 * r + 1]);
      twos[r + 4] = _mm512_unpackhi_epi16(y[2 * r], y[2 * r + 1]);
    }
#pragma GCC unroll 2
    for (int64_t half = 0; half < 8; half += 4) {
      const __m512i a = _mm512_unpacklo_epi32(twos[half], twos[half + 1]);
      const __m512i b = _mm512_unpacklo_epi32(twos[half + 2], twos[half + 3]);
      const __m512i c = _mm512_unpackhi_epi32(twos[half], twos[half + 1]);
      const __m512i d = _mm512_unpackhi_epi32(twos[half + 2], twos[half + 3]);
      uint32_t* to = out + (i + half) * stride;
      _mm512_storeu_si512(to, _mm512_unpacklo_epi64(a, b));
      _mm512_storeu_si512(to + stride, _mm512_unpackhi_epi64(a, b));
      _mm512_storeu_si512(to + 2 * stride, _mm512_unpacklo_epi64(c, d));
      _mm512_storeu_si512(to + 3 * stride, _mm512_unpackhi_epi64(c, d));
    }
  }
}

/// Index for permutations that take 16-bit elements of two vectors alternately: their
/// first 16 elements (`lower`) or their last 16 (`upper`).
struct TurnIndex {
  constexpr TurnIndex() {
    for (uint16_t i = 0; i < 32; ++i) {
      const auto from = static_cast<uint16_t>(i / 2 + i % 2 * 32);
      lower[i] = from;
      upper[i] = static_cast<uint16_t>(from + 16);
    }
  }
  uint16_t lower[32] = {};
  uint16_t upper[32] = {};
};
alignas(64) constexpr TurnIndex kTurnIndex;

/// Packs a right factor from its rows x[k][n]: out[k / 2][n] becomes the pair of rows k
/// and k + 1, for even k.
inline void put_pairs(const SourceBlock& x, uint32_t* out, int64_t stride,
                      int64_t second) {
  const __m512i lower = _mm512_load_si512(kTurnIndex.lower);
  const __m512i upper = _mm512_load_si512(kTurnIndex.upper);
  for (int64_t i = 0; i < kRegisterRows; ++i) {
    const __m512i even = _mm512_loadu_si512(x.row(2 * i));
    const __m512i odd = _mm512_loadu_si512(x.row(2 * i + 1));
    uint32_t* to = out + i * stride;
    _mm512_storeu_si512(to, _mm512_permutex2var_epi16(even, lower, odd));
    _mm512_storeu_si512(to + second, _mm512_permutex2var_epi16(even, upper, odd));
  }
}

/// Packs a right factor from its transpose x[n][k]: out[k / 2][n] becomes a pair of
/// neighbours in k.
inline void put_turned_pairs(const SourceBlock& x, uint32_t* out, int64_t stride,
                             int64_t second) {
  const int64_t bytes = x.stride() * static_cast<int64_t>(sizeof(Bf16));
  turn_words(x.row(0), bytes, out, stride);
  turn_words(x.row(kRegisterRows), bytes, out + second, stride);
}

}  // namespace
}  // namespace longhaul::kernels
