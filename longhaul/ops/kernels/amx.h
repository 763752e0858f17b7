#pragma once

#include "longhaul/ops/kernels/tile.h"

// This header multiplies matrices by AMX. A tile register holds 16 rows of 64 bytes. One
// instruction multiplies two registers of bf16 pairs, which are neighbours in the summed
// dim, and adds the product to a third register of fp32. All matrices are cut into blocks
// of 32 x 32, so that one configuration of the registers serves: four registers hold
// sums, two the left factor and two the right factor.
//
// The unit flushes denormal values to zero and rounds to nearest even, whatever the
// thread's modes are.

namespace longhaul::kernels {
namespace {

constexpr int64_t kTileBlock = 32;  ///< rows, columns and summed elements of a block
constexpr int64_t kRegisterRows = 16;
constexpr int64_t kRegisterWords = 16;  ///< words of 32 bits in a row

/// The configuration that ldtilecfg reads, for palette 1.
struct TileConfiguration {
  uint8_t palette = 1;
  uint8_t start_row = 0;
  uint8_t reserved[14] = {};
  uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};
static_assert(sizeof(TileConfiguration) == 64);
alignas(64) constexpr TileConfiguration kTileConfiguration;

/// Configures the calling thread's tile registers while the object lives. Foreign code
/// must not run meanwhile: such code may configure the registers in another way, or rely
/// on them being unconfigured.
class TileUnit {
 public:
  TileUnit() { _tile_loadconfig(&kTileConfiguration); }
  ~TileUnit() { _tile_release(); }
  TileUnit(const TileUnit&) = delete;
  TileUnit& operator=(const TileUnit&) = delete;
};

/// Where the two registers of a factor are loaded from, step after step. All distances
/// are in bytes.
struct BlockFactor {
  const void* data;
  int64_t row;     ///< distance from one row of a register to the next
  int64_t second;  ///< distance to the second register: rows or columns 16 to 31
  int64_t step;    ///< distance to the next 32 summed elements
};

/// Where the four registers of sums are loaded and stored. All distances are in bytes.
struct BlockSums {
  void* data;
  int64_t row;
  int64_t right;  ///< distance to columns 16 to 31
  int64_t below;  ///< distance to rows 16 to 31
};

/// The `ahead` of multiply_block() that prefetches nothing.
struct NothingAhead {
  void operator()(int64_t /*step*/) const {}
};

/// Multiplies a 32 x (32 steps) factor by a (32 steps) x 32 factor, in ascending order of
/// the summed dim. Overwrites `sums` with the product or adds the product to `sums`. The
/// thread must hold a TileUnit. `ahead(step)` prefetches memory that is needed later, a
/// little with each step: all prefetches at once would hold up the loads.
template <Into kInto, typename Ahead = NothingAhead>
LH_INLINE void multiply_block(int64_t steps, const BlockFactor& left,
                              const BlockFactor& right, const BlockSums& sums,
                              const Ahead& ahead = {}) {
  static_assert(kInto != Into::ScaleAdd);
  const auto* a = static_cast<const char*>(left.data);
  const auto* b = static_cast<const char*>(right.data);
  auto* c = static_cast<char*>(sums.data);
  // The intrinsics do not tell the compiler that they read memory.
  __asm__ volatile("" ::: "memory");
  if constexpr (kInto == Into::Overwrite) {
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
  } else {
    _tile_loadd(0, c, sums.row);
    _tile_loadd(1, c + sums.right, sums.row);
    _tile_loadd(2, c + sums.below, sums.row);
    _tile_loadd(3, c + sums.below + sums.right, sums.row);
  }
  for (int64_t k = 0; k < steps; ++k) {
    _tile_loadd(4, a, left.row);
    _tile_loadd(6, b, right.row);
    _tile_dpbf16ps(0, 4, 6);
    _tile_loadd(7, b + right.second, right.row);
    _tile_dpbf16ps(1, 4, 7);
    _tile_loadd(5, a + left.second, left.row);
    _tile_dpbf16ps(2, 5, 6);
    ahead(k);
    _tile_dpbf16ps(3, 5, 7);
    a += left.step;
    b += right.step;
  }
  _tile_stored(0, c, sums.row);
  _tile_stored(1, c + sums.right, sums.row);
  _tile_stored(2, c + sums.below, sums.row);
  _tile_stored(3, c + sums.below + sums.right, sums.row);
}

// ---- Attention's small products (tile.h)
// ------------------------------------------------

/// A pair of bf16 that AMX tiles multiply. The layouts are those of Pair, padded to whole
/// blocks.
struct TilePair : Pair {};

template <>
struct Element<TilePair> {
  static constexpr int64_t kPair = 2;
  static constexpr int64_t kSummed = kTileBlock;
  static constexpr int64_t kColumns = kTileBlock;
  using Unit = TileUnit;
};

/// Multiplies as small_product() of tile.h does, by tiles. Rows, columns and the summed
/// dim are whole blocks; the pairs of a row of the left factor are contiguous.
template <Into kInto>
void small_product(int64_t rows, int64_t vecs, int64_t depth, Left<TilePair> a,
                   const TilePair* b, int64_t b_stride, float* c, int64_t c_stride) {
  constexpr int64_t kWord = sizeof(TilePair);
  for (int64_t n = 0; n < vecs * kLanes; n += kTileBlock) {
    const BlockFactor right{b + n, b_stride * kWord, kRegisterWords * kWord,
                            kRegisterRows * b_stride * kWord};
    for (int64_t m = 0; m < rows; m += kTileBlock) {
      const BlockFactor left{a.data + m * a.row, a.row * kWord,
                             kRegisterRows * a.row * kWord, kRegisterWords * kWord};
      const BlockSums sums{c + m * c_stride + n, c_stride * kWord, kRegisterWords * kWord,
                           kRegisterRows * c_stride * kWord};
      multiply_block<kInto>(depth / kRegisterWords, left, right, sums);
    }
  }
}

// ---- Packing
// ---------------------------------------------------------------------------

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
