#pragma once

#include <omp.h>

#include "longhaul/ops/kernels/simd.h"

// These loops cut the products of experts into products of one thread each, which the
// Product of the instruction set computes.

namespace longhaul::kernels {
namespace {

constexpr int64_t kUnit = 32;  ///< columns or rows of results that are not divided
/// An expert with more rows is divided, so that threads can share it.
constexpr int64_t kMostExpertRows = 2048;
/// The number of rows of a product that takes as long as reading or writing an expert's
/// matrix.
constexpr int64_t kRowsOfMatrix = 64;
/// The number of columns in a block, where an expert's gradient is divided by columns.
constexpr int64_t kGradientColumns = 512;

/// Calls body(expert, block, begin, end) for the calling thread's share of the work.
/// The work of an expert is a grid of blocks_of(rows) blocks by [0, size), of which the
/// thread takes [begin, end). Experts lie one after another, and all threads have
/// contiguous shares of this work that take equally long.
template <typename Blocks, typename Body>
void for_share(const int32_t* offsets, int64_t experts, int64_t size,
               const Blocks& blocks_of, const Body& body) {
  const int64_t units = ceil_div(size, kUnit);
  const auto rows_of = [&](int64_t e) { return int64_t{offsets[e + 1]} - offsets[e]; };
  const auto cost_of = [&](int64_t rows, int64_t blocks) {
    return rows / larger(blocks, 1) + kRowsOfMatrix;
  };
  int64_t all = 0;
  for (int64_t e = 0; e < experts; ++e) {
    const int64_t blocks = blocks_of(rows_of(e));
    all += blocks * units * cost_of(rows_of(e), blocks);
  }
  const int64_t threads = omp_get_num_threads();
  const int64_t thread = omp_get_thread_num();
  int64_t first = all * thread / threads;
  int64_t last = all * (thread + 1) / threads;
  for (int64_t e = 0; e < experts; ++e) {
    const int64_t blocks = blocks_of(rows_of(e));
    const int64_t cost = cost_of(rows_of(e), blocks);
    const int64_t end = smaller(blocks * units, ceil_div(larger(last, 0), cost));
    for (int64_t u = ceil_div(larger(first, 0), cost); u < end;) {
      const int64_t block = u / units;
      const int64_t stop = smaller(end, (block + 1) * units);
      body(e, block, (u - block * units) * kUnit,
           smaller(size, (stop - block * units) * kUnit));
      u = stop;
    }
    first -= blocks * units * cost;
    last -= blocks * units * cost;
  }
}

/// Computes the products of experts. Each has the bits that a Product of the expert has.
template <void (*kProduct)(const Product&)>
void grouped_product_loop(const GroupedProduct& g) {
#pragma omp parallel
  for_share(
      g.offsets, g.experts, g.N,
      [](int64_t rows) { return ceil_div(rows, kMostExpertRows); },
      [&](int64_t e, int64_t block, int64_t begin, int64_t end) {
        const int64_t rows = g.offsets[e + 1] - g.offsets[e];
        const int64_t height = ceil_div(rows, ceil_div(rows, kMostExpertRows));
        const int64_t row = g.offsets[e] + block * height;
        kProduct(
            {.a = {g.x + row * g.x_stride, g.x_stride, 1},
             .b = {g.b.data + e * g.b_stride + begin * g.b.column, g.b.row, g.b.column},
             .M = smaller(height, g.offsets[e + 1] - row),
             .K = g.K,
             .N = end - begin,
             .y = g.y + row * g.y_stride + begin,
             .stride = g.y_stride});
      });
}

/// Computes the gradients of experts' matrices. Each has the bits that a Product has.
template <void (*kProduct)(const Product&)>
void grouped_gradient_loop(const GroupedGradient<Bf16>& g) {
  const int64_t element = g.wide != nullptr ? sizeof(float) : sizeof(Bf16);
  auto* results =
      g.wide != nullptr ? reinterpret_cast<char*>(g.wide) : reinterpret_cast<char*>(g.y);
#pragma omp parallel
  for_share(
      g.offsets, g.experts, g.M,
      [&](int64_t rows) {
        if (rows == 0 && g.add) return int64_t{0};
        return rows > kMostExpertRows ? ceil_div(g.N, kGradientColumns) : int64_t{1};
      },
      [&](int64_t e, int64_t block, int64_t begin, int64_t end) {
        const int64_t row = g.offsets[e];
        const int64_t rows = g.offsets[e + 1] - row;
        const int64_t n = block * kGradientColumns;
        const int64_t columns =
            rows > kMostExpertRows ? smaller(kGradientColumns, g.N - n) : g.N;
        const int64_t at = e * g.stride + begin * g.N + n;
        if (rows == 0) {
          memset(results + at * element, 0,
                 static_cast<size_t>((end - begin) * g.N * element));
          return;
        }
        kProduct({.a = {g.dy + row * g.dy_stride + begin, 1, g.dy_stride},
                  .b = {g.x + row * g.x_stride + n, g.x_stride, 1},
                  .M = end - begin,
                  .K = rows,
                  .N = columns,
                  .y = g.wide != nullptr ? nullptr : g.y + at,
                  .add = g.add,
                  .wide = g.wide != nullptr ? g.wide + at : nullptr,
                  .stride = g.N});
      });
}

}  // namespace
}  // namespace longhaul::kernels
