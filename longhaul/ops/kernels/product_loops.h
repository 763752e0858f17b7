#pragma once

#include <omp.h>

#include "longhaul/ops/kernels/product_put.h"
#include "longhaul/ops/kernels/tile.h"
#if defined(__AVX512F__)
#include "longhaul/ops/kernels/blocks.h"
#endif

// This loop computes the product a b of bf16, summed in fp32. Elements of type E are
// floats or pairs of bf16 (tile.h); depths count elements. Both operands are packed into
// panels, a block at a time, so that no operand exists twice. If E is float, packing
// widens the bf16 values. The blocking for the caches follows K. Goto and R. van de
// Geijn, Anatomy of High-Performance Matrix Multiplication, ACM TOMS 34 (2008). Shapes: M
// rows, K summed, N columns.

namespace longhaul::kernels {
namespace {

constexpr int64_t kSumRows = 2304;      ///< rows of sums at once, below 5 MB
constexpr int64_t kSumColumns = 512;    ///< columns of sums at once
constexpr int64_t kPackedDepth = 1024;  ///< rows of b packed at once, 2 MB
constexpr int64_t kBlockRows = 96;      ///< a block of a, or of sums, stays in L2
constexpr int64_t kBPanel = kTileVecs * kLanes;
constexpr int64_t kPanelDepth = kLanes == 8 ? 256 : 128;  ///< a panel of b stays in L1
constexpr int64_t kLine = 64 / sizeof(Bf16);              ///< elements of a cache line

#if defined(__AVX512F__)

constexpr int64_t kPackedUnit = kTileBlock;  ///< panels take whole blocks of the depth

/// Widens 16 pairs of bf16 values to floats: the first values, in the lower halves of the
/// words, go to `out`, the second values to the next row.
template <int64_t kWidth>
LH_INLINE void put_words(const uint32_t* words, float* out) {
  const __m512i x = _mm512_load_si512(words);
  _mm512_storeu_si512(out, _mm512_slli_epi32(x, 16));
  _mm512_storeu_si512(out + kWidth, _mm512_maskz_mov_epi16(0xAAAAAAAA, x));
}

/// Packs rows of x as out[k][kWidth], by blocks. Only `count` rows exist, of `summed`
/// values each; the others of the last block become 0.
template <int64_t kWidth, typename E>
void pack_panel(MatrixInput x, int64_t count, int64_t summed, E* out) {
  static_assert(kWidth % kTileBlock == 0);
  constexpr int64_t kWords = kTileBlock / 2;
  const bool by_rows = x.column == 1;
  const int64_t across = ceil_div(smaller(count, kWidth), kTileBlock);
  const int64_t along = ceil_div(summed, kTileBlock);
  for (int64_t i = 0; i < across * along; ++i) {
    // The loop follows the order of the matrix in memory.
    const int64_t n = (by_rows ? i / along : i % across) * kTileBlock;
    const int64_t k = (by_rows ? i % along : i / across) * kTileBlock;
    const MatrixInput at = from(x, n, k);
    E* to = out + k / Element<E>::kPair * kWidth + n;
    alignas(64) uint32_t words[kWords * kTileBlock];
    uint32_t* pairs = words;
    int64_t stride = kTileBlock;
    if constexpr (Element<E>::kPair == 2) {
      pairs = &to->bits;
      stride = kWidth;
    }
    if (by_rows) {
      const SourceBlock block(at.data, at.row, count - n, summed - k);
      put_turned_pairs(block, pairs, stride, kRegisterWords);
    } else {
      const SourceBlock block(at.data, at.column, summed - k, count - n);
      put_pairs(block, pairs, stride, kRegisterWords);
    }
    if constexpr (Element<E>::kPair == 1) {
      for (int64_t t = 0; t < kWords; ++t) {
        for (int64_t j = 0; j < kTileBlock; j += kLanes)
          put_words<kWidth>(words + t * kTileBlock + j, to + 2 * t * kWidth + j);
      }
    }
  }
}

/// Packs a block of a, where a has `rows` rows from the block's first row on. Returns the
/// left operand of the block's first tile.
template <typename E>
Left<E> pack_left(MatrixInput a, int64_t rows, int64_t /*count*/, int64_t summed,
                  E* out) {
  pack_panel<kBlockRows>(a, rows, summed, out);
  return {out, 1, kBlockRows};
}
/// Returns the distance from one tile's left operand to the next.
constexpr int64_t left_tile(int64_t /*depth*/) { return kTileRows; }

#else

constexpr int64_t kPackedUnit = 1;  ///< panels take any depth

/// Transposes 8 x 8 values: x[i] is row i before, and column i afterwards.
LH_INLINE void transpose(Vec (&x)[8]) {
  Vec pairs[8];
  Vec fours[8];
#pragma GCC unroll 4
  for (int i = 0; i < 8; i += 2) {
    pairs[i] = _mm256_unpacklo_ps(x[i], x[i + 1]);
    pairs[i + 1] = _mm256_unpackhi_ps(x[i], x[i + 1]);
  }
#pragma GCC unroll 2
  for (int i = 0; i < 8; i += 4) {
    fours[i] = _mm256_shuffle_ps(pairs[i], pairs[i + 2], 0x44);
    fours[i + 1] = _mm256_shuffle_ps(pairs[i], pairs[i + 2], 0xEE);
    fours[i + 2] = _mm256_shuffle_ps(pairs[i + 1], pairs[i + 3], 0x44);
    fours[i + 3] = _mm256_shuffle_ps(pairs[i + 1], pairs[i + 3], 0xEE);
  }
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    x[i] = _mm256_permute2f128_ps(fours[i], fours[i + 4], 0x20);
    x[i + 4] = _mm256_permute2f128_ps(fours[i], fours[i + 4], 0x31);
  }
}

/// Packs kWidth rows of x as out[k][kWidth]. Only `count` rows exist; the others become
/// 0. If kWidth is no multiple of kLanes, a store runs over into the next row of the
/// panel, which is written later. Panels must therefore be packed one after another, with
/// room for kLanes elements past the last panel.
template <int64_t kWidth>
void pack_panel(MatrixInput x, int64_t count, int64_t depth, float* out) {
  for (int64_t first = 0; first < kWidth; first += kLanes) {
    const int64_t rows = smaller(kLanes, count - first);
    if (x.row == 1) {
      const Bf16* from = x.data + first;
      float* to = out + first;
      if (rows == kLanes) {
        for (int64_t k = 0; k < depth; ++k)
          store(to + k * kWidth, load(from + k * x.column, Full{}), Full{});
      } else {
        for (int64_t k = 0; k < depth; ++k) {
          const Vec y = rows > 0 ? load(from + k * x.column, Part{rows}) : zero();
          store(to + k * kWidth, y, Full{});
        }
      }
      continue;
    }
    const Bf16* from = x.data + first * x.row;
    for_lanes(depth, [&](int64_t k, auto lanes) {
      Vec y[kLanes];
#pragma GCC unroll 8
      for (int64_t i = 0; i < kLanes; ++i)
        y[i] = i < rows ? load(from + i * x.row + k, lanes) : zero();
      transpose(y);
      float* to = out + k * kWidth + first;
#pragma GCC unroll 8
      for (int64_t i = 0; i < kLanes; ++i)
        if (k + i < depth) store(to + i * kWidth, y[i], Full{});
    });
  }
}

/// Prefetches what a panel will read: without a prefetch, rows that lie far apart would
/// arrive too late.
LH_INLINE void prefetch_panel(MatrixInput x, int64_t count, int64_t depth) {
  if (x.row == 1) return;
  for (int64_t i = 0; i < smaller(count, kTileRows); ++i) {
    for (int64_t k = 0; k < depth; k += kLine) __builtin_prefetch(x.data + i * x.row + k);
  }
}

/// Packs a block of `count` rows of a, where a has `rows` rows from the block's first row
/// on. Returns the left operand of the block's first tile.
inline Left<float> pack_left(MatrixInput a, int64_t rows, int64_t count, int64_t summed,
                             float* out) {
  for (int64_t r = 0; r < count; r += kTileRows) {
    const int64_t next = r + kTileRows;
    prefetch_panel(from(a, next, 0), rows - next, summed);
    pack_panel<kTileRows>(from(a, r, 0), rows - r, summed, out + r * summed);
  }
  return {out, 1, kTileRows};
}
/// Returns the distance from one tile's left operand to the next.
constexpr int64_t left_tile(int64_t depth) { return kTileRows * depth; }

#endif

/// Multiplies a block of a by a block of b, both packed. Overwrites sums [rows, columns]
/// with the product if `first`, else adds the product. Panels of b are `b_panel` elements
/// apart.
template <typename E>
void add_block(bool first, int64_t rows, int64_t columns, int64_t depth, Left<E> a,
               const E* b, int64_t b_panel, float* sums, int64_t stride) {
  for (int64_t n = 0; n < columns; n += kBPanel, b += b_panel) {
    Left<E> left = a;
    for (int64_t m = 0; m < rows; m += kTileRows, left.data += left_tile(depth)) {
      float* to = sums + m * stride + n;
      const int64_t count = smaller(kTileRows, rows - m);
      // Without this prefetch the tile would wait for the sums at its end.
      for (int64_t i = 0; i < count; ++i) __builtin_prefetch(to + i * stride, 1);
      if (first) {
        tile_rows<Into::Overwrite, kTileVecs>(count, left, b, kBPanel, depth, to, stride,
                                              nullptr);
      } else {
        tile_rows<Into::Add, kTileVecs>(count, left, b, kBPanel, depth, to, stride,
                                        nullptr);
      }
    }
  }
}

/// Writes finished sums, the first of which is (m, n), to the result.
inline void put_sums(const Product& p, const float* sums, int64_t stride, int64_t m,
                     int64_t rows, int64_t n, int64_t columns) {
  for (int64_t i = 0; i < rows; ++i) {
    if (p.y != nullptr && i + 1 < rows) {
      for (int64_t j = 0; j < columns; j += kLine)
        __builtin_prefetch(p.y + (m + i + 1) * p.stride + n + j, 1);
    }
    for_lanes(columns, [&](int64_t j, auto lanes) {
      put_lanes(p, m + i, n + j, load(sums + i * stride + j, lanes), lanes);
    });
  }
}

/// Computes a product by elements of type E. Each sum is formed in ascending k within a
/// panel, and over ascending panels, however many threads there are.
template <typename E>
void product_loop(const Product& p) {
  constexpr int64_t kPair = Element<E>::kPair;
  // The stride has a cache line more: otherwise the rows of a tile would fall into one
  // set of the cache.
  const int64_t stride = round_up(smaller(p.N, kSumColumns), kBPanel) + 16;
  const int64_t height = round_up(smaller(p.M, kSumRows), kTileRows);
  const int64_t all = ceil_div(p.K, kPair);
  const auto room_of = [](int64_t depth) { return round_up(depth, kPackedUnit); };
  const Scratch<float> sums(height * stride);
  const Scratch<E> right(stride * room_of(smaller(all, kPackedDepth)));
  // The transpose of b has the columns as rows, as pack_panel() takes them.
  const MatrixInput columns_of_b{p.b.data, p.b.column, p.b.row};
#pragma omp parallel if (omp_in_parallel() == 0)
  {
    const Scratch<E> left(kBlockRows * room_of(smaller(all, kPanelDepth)) + kLanes);
    for (int64_t m = 0; m < p.M; m += kSumRows) {
      const int64_t rows = smaller(kSumRows, p.M - m);
      for (int64_t n = 0; n < p.N; n += kSumColumns) {
        const int64_t columns = smaller(kSumColumns, p.N - n);
        const int64_t panels = ceil_div(columns, kBPanel);
        for (int64_t k = 0; k < all; k += kPackedDepth) {
          const int64_t packed = smaller(kPackedDepth, all - k);
          const auto summed = [&](int64_t at) {
            return smaller(kPanelDepth * kPair, p.K - (k + at) * kPair);
          };
          // Panels of one depth follow each other.
#pragma omp for schedule(static)
          for (int64_t i = 0; i < panels * ceil_div(packed, kPanelDepth); ++i) {
            const int64_t at = i / panels * kPanelDepth;
            const int64_t room = room_of(smaller(kPanelDepth, packed - at));
            const int64_t j = i % panels * kBPanel;
            pack_panel<kBPanel>(from(columns_of_b, n + j, (k + at) * kPair), columns - j,
                                summed(at),
                                right.get() + at * panels * kBPanel + j * room);
          }
#pragma omp for schedule(static)
          for (int64_t i = 0; i < rows; i += kBlockRows) {
            const int64_t count = smaller(kBlockRows, rows - i);
            float* block = sums.get() + i * stride;
            for (int64_t at = 0; at < packed; at += kPanelDepth) {
              const int64_t depth = smaller(kPanelDepth, packed - at);
              const Left<E> a = pack_left(from(p.a, m + i, (k + at) * kPair), p.M - m - i,
                                          count, summed(at), left.get());
              add_block(k + at == 0, count, columns, depth, a,
                        right.get() + at * panels * kBPanel, room_of(depth) * kBPanel,
                        block, stride);
            }
            if (k + packed == all) put_sums(p, block, stride, m + i, count, n, columns);
          }
        }
      }
    }
    fence_past();
  }
}

}  // namespace
}  // namespace longhaul::kernels
