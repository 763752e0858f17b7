#pragma once

#include <omp.h>

#include "longhaul/ops/kernels/amx.h"
#include "longhaul/ops/kernels/product_put.h"

// a b of bf16, summed in fp32 by tiles. A slice of sums is formed at once, from a chunk
// of the summed dim after the other; both factors of a chunk are packed by all threads,
// each element once, as the registers read it. Shapes: M rows, K summed, N columns.

namespace longhaul::kernels {
namespace {

constexpr int64_t kSliceRows = 2048;     ///< of sums at once
constexpr int64_t kSliceColumns = 2048;  ///< of sums at once: 16 MB with kSliceRows
constexpr int64_t kChunkDepth = 2048;    ///< of both factors at once: 8 MB each
/// What a block reads of the right factor, 16 KB, stays in L1 beside what it reads of the
/// left one.
constexpr int64_t kPanelDepth = 256;
/// An item's share of a chunk, 1 MB of the left factor, and its sums stay in L2.
constexpr int64_t kMostItem = 256;
constexpr int64_t kLeastItem = 64;
constexpr int64_t kItemsPerThread = 3;

constexpr int64_t kRegister = kRegisterRows * kRegisterWords;
constexpr int64_t kStepWords = 2 * kRegister;  ///< of 32 x 32 values
constexpr int64_t kBlockSums = kTileBlock * kTileBlock;
constexpr int64_t kWordBytes = 4;
constexpr int64_t kRowBytes = kRegisterWords * kWordBytes;

enum class Side { Left, Right };

constexpr int64_t kPackGroup = 8;

/// Packs a panel of up to kPackGroup strips of 32 rows: [strip][k / 32][32 x 32], strips
/// `strip_words` apart. The right factor's rows are columns of b.
template <Side kSide>
void pack_strips(MatrixInput x, int64_t count, int64_t depth, uint32_t* out,
                 int64_t strip_words) {
  const int64_t strips = ceil_div(count, kTileBlock);
  const int64_t steps = ceil_div(depth, kTileBlock);
  const bool by_rows = x.column == 1;
  for (int64_t i = 0; i < strips * steps; ++i) {
    // Along the memory.
    const int64_t strip = (by_rows ? i / steps : i % strips) * kTileBlock;
    const int64_t k = (by_rows ? i % steps : i / strips) * kTileBlock;
    const MatrixInput at = from(x, strip, k);
    uint32_t* to = out + strip / kTileBlock * strip_words + k / kTileBlock * kStepWords;
    if (by_rows) {
      const SourceBlock block(at.data, at.row, count - strip, depth - k);
      if constexpr (kSide == Side::Left) put_rows(block, to, kRegisterWords);
      if constexpr (kSide == Side::Right)
        put_turned_pairs(block, to, kRegisterWords, kRegister);
    } else {
      // Rows that lie far apart come too late by themselves.
      for (int64_t r = 0; r < kTileBlock; ++r)
        __builtin_prefetch(at.data + (kTileBlock + r) * at.column);
      const SourceBlock block(at.data, at.column, depth - k, count - strip);
      if constexpr (kSide == Side::Left) put_columns(block, to, kRegisterWords);
      if constexpr (kSide == Side::Right) put_pairs(block, to, kRegisterWords, kRegister);
    }
  }
}

/// Packs a chunk of one factor; a share of the enclosing parallel region.
template <Side kSide>
void pack_chunk(MatrixInput x, int64_t count, int64_t depth, uint32_t* out) {
  constexpr int64_t kGroupRows = kPackGroup * kTileBlock;
  const int64_t strip_words = ceil_div(depth, kTileBlock) * kStepWords;
  const int64_t panels = ceil_div(depth, kPanelDepth);
#pragma omp for schedule(static) nowait
  for (int64_t i = 0; i < ceil_div(count, kGroupRows) * panels; ++i) {
    const int64_t row = i / panels * kGroupRows;
    const int64_t k = i % panels * kPanelDepth;
    pack_strips<kSide>(from(x, row, k), smaller(kGroupRows, count - row),
                       smaller(kPanelDepth, depth - k),
                       out + row / kTileBlock * strip_words + k / kTileBlock * kStepWords,
                       strip_words);
  }
}

/// Rows and columns of sums that one item of work forms: as many as caches hold, fewer
/// where there would be too few items.
struct ItemSize {
  ItemSize(int64_t all_rows, int64_t all_columns, int64_t threads)
      : rows(kMostItem), columns(kMostItem) {
    while (rows > kLeastItem &&
           ceil_div(all_rows, rows) * ceil_div(all_columns, columns) <
               kItemsPerThread * threads) {
      (rows > columns ? rows : columns) /= 2;
    }
  }
  int64_t rows, columns;
};

/// Blocks [first, last) of rows or columns of a slice.
struct BlockRange {
  int64_t first, last;
};

/// A slice's packed factors and sums, [block of rows][block of columns][4 registers].
struct Slice {
  const uint32_t *left, *right;
  float* sums;
  int64_t column_blocks;

  float* block(int64_t m, int64_t n) const {
    return sums + (m * column_blocks + n) * kBlockSums;
  }
};

/// sums = or += the product of a chunk.
inline void multiply_chunk(const Slice& slice, BlockRange rows, BlockRange columns,
                           int64_t depth, bool first) {
  const int64_t steps = ceil_div(depth, kTileBlock);
  constexpr int64_t kPanelSteps = kPanelDepth / kTileBlock;
  const auto factor = [](const uint32_t* data) {
    return BlockFactor{data, kRowBytes, kRegister * kWordBytes, kStepWords * kWordBytes};
  };
  for (int64_t k = 0; k < steps; k += kPanelSteps) {
    const int64_t count = smaller(kPanelSteps, steps - k);
    for (int64_t n = columns.first; n < columns.last; ++n) {
      const BlockFactor right = factor(slice.right + (n * steps + k) * kStepWords);
      for (int64_t m = rows.first; m < rows.last; ++m) {
        const BlockFactor left = factor(slice.left + (m * steps + k) * kStepWords);
        const BlockSums sums{slice.block(m, n), kRowBytes, kRegister * kWordBytes,
                             2 * kRegister * kWordBytes};
        if (first && k == 0) {
          multiply_block<Into::Overwrite>(count, left, right, sums);
        } else {
          multiply_block<Into::Add>(count, left, right, sums);
        }
      }
    }
  }
}

/// Finished sums of a slice that begins at row m and column n of the result.
inline void put_chunk(const Product& p, const Slice& slice, BlockRange rows,
                      BlockRange columns, int64_t m, int64_t n) {
  const int64_t end = smaller(columns.last * kTileBlock, p.N - n);
  for (int64_t i = rows.first * kTileBlock; i < smaller(rows.last * kTileBlock, p.M - m);
       ++i) {
    const int64_t in_block = i % kTileBlock / kRegisterRows * 2 * kRegister +
                             i % kRegisterRows * kRegisterWords;
    for (int64_t j = columns.first * kTileBlock; j < end; j += kLanes) {
      const float* x = slice.block(i / kTileBlock, j / kTileBlock) + in_block +
                       j % kTileBlock / kRegisterWords * kRegister;
      if (j + kLanes <= end) {
        put_lanes(p, m + i, n + j, load(x, Full{}), Full{});
      } else {
        put_lanes(p, m + i, n + j, load(x, Full{}), Part{end - j});
      }
    }
  }
}

/// Each sum is one of ascending k, in registers within a panel, however many threads
/// there are.
inline void tile_product_loop(const Product& p) {
  const int64_t height = round_up(smaller(p.M, kSliceRows), kTileBlock);
  const int64_t width = round_up(smaller(p.N, kSliceColumns), kTileBlock);
  const int64_t deepest = round_up(smaller(p.K, kChunkDepth), kTileBlock);
  const Scratch<float> sums(height * width);
  const Scratch<uint32_t> left(height * deepest / 2);
  const Scratch<uint32_t> right(width * deepest / 2);
  // b as rows of columns, as a is packed.
  const MatrixInput columns_of_b{p.b.data, p.b.column, p.b.row};
#pragma omp parallel
  {
    const TileUnit unit;
    for (int64_t m = 0; m < p.M; m += kSliceRows) {
      const int64_t rows = smaller(kSliceRows, p.M - m);
      for (int64_t n = 0; n < p.N; n += kSliceColumns) {
        const int64_t columns = smaller(kSliceColumns, p.N - n);
        const ItemSize size(rows, columns, omp_get_num_threads());
        const int64_t across = ceil_div(columns, size.columns);
        const Slice slice{left.get(), right.get(), sums.get(),
                          ceil_div(columns, kTileBlock)};
        for (int64_t k = 0; k < p.K; k += kChunkDepth) {
          const int64_t depth = smaller(kChunkDepth, p.K - k);
          pack_chunk<Side::Left>(from(p.a, m, k), rows, depth, left.get());
          pack_chunk<Side::Right>(from(columns_of_b, n, k), columns, depth, right.get());
#pragma omp barrier
#pragma omp for schedule(static)
          for (int64_t i = 0; i < ceil_div(rows, size.rows) * across; ++i) {
            const auto range = [](int64_t first, int64_t count, int64_t all) {
              return BlockRange{first / kTileBlock,
                                ceil_div(smaller(all, first + count), kTileBlock)};
            };
            const BlockRange some_rows = range(i / across * size.rows, size.rows, rows);
            const BlockRange some_columns =
                range(i % across * size.columns, size.columns, columns);
            multiply_chunk(slice, some_rows, some_columns, depth, k == 0);
            if (k + depth == p.K) put_chunk(p, slice, some_rows, some_columns, m, n);
          }
        }
      }
    }
  }
}

/// grad [N, K] += dy [T, N]^T x [T, K].
inline void tile_weight_gradient_loop(const Bf16* dy, int64_t dy_stride, const Bf16* x,
                                      int64_t x_stride, int64_t T, int64_t N, int64_t K,
                                      float* grad) {
  tile_product_loop({.a = {dy, 1, dy_stride},
                     .b = {x, x_stride, 1},
                     .M = N,
                     .K = T,
                     .N = K,
                     .y = nullptr,
                     .wide = grad});
}

}  // namespace
}  // namespace longhaul::kernels
