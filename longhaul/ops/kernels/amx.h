#pragma once

#include "longhaul/ops/kernels/blocks.h"
#include "longhaul/ops/kernels/tile.h"

// This header multiplies matrices by AMX. A tile register holds 16 rows of 64 bytes. One
// instruction multiplies two registers of bf16 pairs, which are neighbours in the summed
// dim, and adds the product to a third register of fp32. All matrices are cut into blocks
// of 32 x 32, so that one configuration of the registers serves: four registers hold
// sums, two the left factor and two the right factor.
//
// The AMX unit flushes denormal values to zero and rounds to nearest even, whatever the
// thread's modes are.

namespace longhaul::kernels {
namespace {

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

/// Computes the product of small_product() in tile.h with AMX tiles. Rows, columns and
/// the summed dim are whole blocks; the pairs of a row of the left factor are contiguous.
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

}  // namespace
}  // namespace longhaul::kernels
