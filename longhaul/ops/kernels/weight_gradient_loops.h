#pragma once

#include "longhaul/ops/kernels/attention_pack.h"

namespace longhaul::kernels {
namespace {

// This loop computes grad [N, K] += dy [T, N]^T x [T, K] in chunks of T. Both operands
// are packed as pairs of neighbours in T: dy in panels of kTileRows columns, x in panels
// of kPanel columns.
constexpr int64_t kChunk = 1024;    ///< rows of T at a time: a panel of x stays in L2
constexpr int64_t kPackRows = 256;  ///< rows of dy that one item of packing takes
constexpr int64_t kPanel = kTileVecs * kLanes;
constexpr int64_t kGroup = 32;  ///< panels of dy that one item of work takes
constexpr int64_t kGroupColumns = kGroup * kTileRows;

/// Returns the elements from one panel of dy to the next: the panel and a cache line.
/// Without this cache line, all panels of a group would fall into one set of the cache
/// while they are written side by side.
LH_INLINE int64_t left_stride(int64_t depth) { return depth * kTileRows + 16; }

/// Packs some rows and up to kGroupColumns columns of dy into panels [t / 2][kTileRows].
inline void pack_left(const Bf16* dy, int64_t stride, int64_t rows, int64_t columns,
                      int64_t panel_stride, Pair* out) {
  alignas(64) Pair line[kGroupColumns] = {};
  for (int64_t t = 0; t < ceil_div(rows, 2); ++t) {
    const Bf16* x0 = dy + 2 * t * stride;
    const bool whole = 2 * t + 1 < rows;
    for_lanes(columns, [&](int64_t n, auto lanes) {
      // A bf16 value is the upper half of a float: the first value of a pair moves down.
      const __m512i first = _mm512_castps_si512(load(x0 + n, lanes));
      const __m512i second = whole ? _mm512_castps_si512(load(x0 + stride + n, lanes))
                                   : _mm512_setzero_si512();
      _mm512_store_si512(line + n, _mm512_or_si512(_mm512_srli_epi32(first, 16), second));
    });
    for (int64_t n = 0; n < columns; n += kTileRows) {
      Pair* to = out + n / kTileRows * panel_stride + t * kTileRows;
      memcpy(to, line + n, kTileRows * sizeof(Pair));
    }
  }
}

/// Adds one panel of dy times one panel of x to c [rows, columns].
inline void add_tile(int64_t rows, int64_t columns, int64_t depth, const Pair* left,
                     const Pair* right, float* c, int64_t c_stride) {
  const Left<Pair> a{left, 1, kTileRows};
  for (int64_t m = 0; m < rows; ++m) {
    for (int64_t i = 0; i < columns; i += kLanes)
      __builtin_prefetch(c + m * c_stride + i, 1);
  }
  if (columns % kLanes == 0) {
    small_product<Into::Add>(rows, columns / kLanes, depth, a, right, kPanel, c,
                             c_stride);
    return;
  }
  alignas(64) float edge[kTileRows * kPanel];
  small_product<Into::Overwrite>(rows, ceil_div(columns, kLanes), depth, a, right, kPanel,
                                 edge, kPanel);
  for (int64_t m = 0; m < rows; ++m) {
    for_lanes(columns, [&](int64_t i, auto lanes) {
      float* to = c + m * c_stride + i;
      store(to, add(load(to, lanes), load(edge + m * kPanel + i, lanes)), lanes);
    });
  }
}

inline void weight_gradient_loop(const Bf16* dy, int64_t dy_stride, const Bf16* x,
                                 int64_t x_stride, int64_t T, int64_t N, int64_t K,
                                 float* grad) {
  const int64_t groups = ceil_div(N, kGroupColumns);
  const int64_t panels = ceil_div(K, kPanel);
  const int64_t most = ceil_div(smaller(T, kChunk), 2);
  const Scratch<Pair> left(groups * kGroup * left_stride(most));
  const Scratch<Pair> right(panels * kPanel * most);
#pragma omp parallel
  for (int64_t t = 0; t < T; t += kChunk) {
    const int64_t rows = smaller(kChunk, T - t);
    const int64_t depth = ceil_div(rows, 2);
#pragma omp for schedule(static) nowait collapse(2)
    for (int64_t g = 0; g < groups; ++g) {
      for (int64_t from = 0; from < kChunk; from += kPackRows) {
        if (from >= rows) continue;
        const int64_t n = g * kGroupColumns;
        pack_left(dy + (t + from) * dy_stride + n, dy_stride,
                  smaller(kPackRows, rows - from), smaller(kGroupColumns, N - n),
                  left_stride(depth),
                  left.get() + g * kGroup * left_stride(depth) + from / 2 * kTileRows);
      }
    }
#pragma omp for schedule(static)
    for (int64_t p = 0; p < panels; ++p) {
      const int64_t k = p * kPanel;
      pack_pairs(x + t * x_stride + k, x_stride, rows, 2 * depth, smaller(kPanel, K - k),
                 kPanel, right.get() + k * depth);
    }
#pragma omp for schedule(static)
    for (int64_t i = 0; i < panels * groups; ++i) {
      const int64_t k = i % panels * kPanel;
      const int64_t first = i / panels * kGroupColumns;
      const int64_t end = smaller(N, first + kGroupColumns);
      for (int64_t n = first; n < end; n += kTileRows) {
        add_tile(smaller(kTileRows, end - n), smaller(kPanel, K - k), depth,
                 left.get() + n / kTileRows * left_stride(depth), right.get() + k * depth,
                 grad + n * K + k, K);
      }
    }
  }
}

}  // namespace
}  // namespace longhaul::kernels
