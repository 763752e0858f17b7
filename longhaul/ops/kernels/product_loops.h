#pragma once

#include <omp.h>

#include "longhaul/ops/kernels/product_put.h"
#include "longhaul/ops/kernels/tile.h"

// This loop computes the product a b of bf16, summed in fp32, for processors whose
// instructions multiply floats only. Both operands are widened while they are packed into
// panels, a block at a time, so that no operand exists twice. The blocking for the caches
// follows K. Goto and R. van de Geijn, Anatomy of High-Performance Matrix Multiplication,
// ACM TOMS 34 (2008). Shapes: M rows, K summed, N columns.

namespace longhaul::kernels {
namespace {

constexpr int64_t kSumRows = 2304;      ///< rows of sums at once, below 5 MB
constexpr int64_t kSumColumns = 512;    ///< columns of sums at once
constexpr int64_t kPackedDepth = 1024;  ///< rows of b packed at once, 2 MB
constexpr int64_t kPanelDepth = 256;    ///< a panel of b stays in L1
constexpr int64_t kBlockRows = 96;      ///< a block of a, or of sums, stays in L2
static_assert(kLanes == 8, "panels are transposed by 256 bits");
constexpr int64_t kBPanel = kTileVecs * kLanes;
constexpr int64_t kLine = 64 / sizeof(Bf16);  ///< elements of a cache line

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

/// Multiplies a block of a by a block of b, both packed. Overwrites sums [rows, columns]
/// with the product if `first`, else adds the product.
inline void add_block(bool first, int64_t rows, int64_t columns, int64_t depth,
                      const float* a, const float* b, float* sums, int64_t stride) {
  for (int64_t n = 0; n < columns; n += kBPanel) {
    for (int64_t m = 0; m < rows; m += kTileRows) {
      const Left<float> left{a + m * depth, 1, kTileRows};
      const float* right = b + n * depth;
      float* to = sums + m * stride + n;
      const int64_t count = smaller(kTileRows, rows - m);
      // Without this prefetch the tile would wait for the sums at its end.
      for (int64_t i = 0; i < count; ++i) __builtin_prefetch(to + i * stride, 1);
      if (first) {
        tile_rows<Into::Overwrite, kTileVecs>(count, left, right, kBPanel, depth, to,
                                              stride, nullptr);
      } else {
        tile_rows<Into::Add, kTileVecs>(count, left, right, kBPanel, depth, to, stride,
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

/// Computes a product. Each sum is formed in ascending k within a panel, and over
/// ascending panels, however many threads there are.
inline void product_loop(const Product& p) {
  // The stride has a cache line more: otherwise the rows of a tile would fall into one
  // set of the cache.
  const int64_t stride = round_up(smaller(p.N, kSumColumns), kBPanel) + 16;
  const int64_t height = round_up(smaller(p.M, kSumRows), kTileRows);
  const int64_t deepest = smaller(p.K, kPackedDepth);
  const Scratch<float> sums(height * stride);
  const Scratch<float> right(stride * deepest);
  // The transpose of b has the columns as rows, as pack_panel() takes them.
  const MatrixInput columns_of_b{p.b.data, p.b.column, p.b.row};
#pragma omp parallel if (omp_in_parallel() == 0)
  {
    const Scratch<float> left(kBlockRows * smaller(p.K, kPanelDepth) + kLanes);
    for (int64_t m = 0; m < p.M; m += kSumRows) {
      const int64_t rows = smaller(kSumRows, p.M - m);
      for (int64_t n = 0; n < p.N; n += kSumColumns) {
        const int64_t columns = smaller(kSumColumns, p.N - n);
        const int64_t panels = ceil_div(columns, kBPanel);
        for (int64_t k = 0; k < p.K; k += kPackedDepth) {
          const int64_t packed = smaller(kPackedDepth, p.K - k);
          // Panels of one depth follow each other.
#pragma omp for schedule(static)
          for (int64_t i = 0; i < panels * ceil_div(packed, kPanelDepth); ++i) {
            const int64_t at = i / panels * kPanelDepth;
            const int64_t depth = smaller(kPanelDepth, packed - at);
            const int64_t j = i % panels * kBPanel;
            pack_panel<kBPanel>(from(columns_of_b, n + j, k + at), columns - j, depth,
                                right.get() + at * panels * kBPanel + j * depth);
          }
#pragma omp for schedule(static)
          for (int64_t i = 0; i < rows; i += kBlockRows) {
            const int64_t count = smaller(kBlockRows, rows - i);
            float* block = sums.get() + i * stride;
            for (int64_t at = 0; at < packed; at += kPanelDepth) {
              const int64_t depth = smaller(kPanelDepth, packed - at);
              for (int64_t r = 0; r < count; r += kTileRows) {
                const int64_t next = i + r + kTileRows;
                prefetch_panel(from(p.a, m + next, k + at), rows - next, depth);
                pack_panel<kTileRows>(from(p.a, m + i + r, k + at), p.M - m - i - r,
                                      depth, left.get() + r * depth);
              }
              add_block(k + at == 0, count, columns, depth, left.get(),
                        right.get() + at * panels * kBPanel, block, stride);
            }
            if (k + packed == p.K) put_sums(p, block, stride, m + i, count, n, columns);
          }
        }
      }
    }
    fence_past();
  }
}

}  // namespace
}  // namespace longhaul::kernels
