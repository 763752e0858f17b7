#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace longhaul::ops {

// Tokens on their way to experts. T tokens are sent to k of E experts each, which makes
// R = T k rows. The rows of an expert follow each other, in the order of their tokens.

/// Where the rows of tokens lie.
struct RoutedRows {
  at::Tensor token;    ///< int64 [R]: the token of each row
  at::Tensor place;    ///< int64 [T, k]: the rows of each token, in the order of experts
  at::Tensor offsets;  ///< int32 [E + 1]: the first row of each expert; the last is R
};

/// Sorts the choices `chosen`, int64 [T, k], by expert. The experts of a token must be
/// different and in ascending order. The host does not wait for a device.
RoutedRows route(const at::Tensor& chosen, int64_t experts);

/// Returns the row of x [T, H] that each routed row stands for: [R, H]. The backward adds
/// the gradients of a token's rows in the order of experts, in fp32.
at::Tensor gather_rows(const at::Tensor& x, const RoutedRows& rows, bool fused);

/// Returns the sum of each token's rows of y [R, H]: [T, H]. The k rows are added in the
/// order of experts, in fp32, and rounded once.
at::Tensor sum_rows(const at::Tensor& y, const RoutedRows& rows, bool fused);

// The same without a graph, for rows that need not follow each other in memory.

/// Writes row `row[r]` of x [T, H] to row r of y [R, H]; `row` is int64 [R].
void put_rows(const at::Tensor& x, const at::Tensor& row, const at::Tensor& y,
              bool fused);

/// Returns the sums that sum_rows() returns, for the places of RoutedRows.
at::Tensor added_rows(const at::Tensor& y, const at::Tensor& place, bool fused);

}  // namespace longhaul::ops
