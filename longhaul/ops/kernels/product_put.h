#pragma once

#include "longhaul/ops/kernels/simd.h"

// All forms of the product share these functions: the address of an operand's element,
// and the writing of finished sums.

namespace longhaul::kernels {
namespace {

/// Returns the part of x that begins at (row, column).
LH_INLINE MatrixInput from(MatrixInput x, int64_t row, int64_t column) {
  return {x.data + row * x.row + column * x.column, x.row, x.column};
}

/// Writes the finished sums x to row m from column n on: adds the bias, and with `add`
/// the previous content.
template <typename Lanes>
LH_INLINE void put_lanes(const Product& p, int64_t m, int64_t n, Vec x, Lanes lanes) {
  if (p.bias != nullptr) x = add(x, load(p.bias + n, lanes));
  const int64_t at = m * p.stride + n;
  if (p.wide != nullptr) {
    if (!p.add) return store_past(p.wide + at, x, lanes);
    store(p.wide + at, add(load(p.wide + at, lanes), x), lanes);
  } else {
    if (p.add) x = add(load(p.y + at, lanes), x);
    store(p.y + at, x, lanes);
  }
}

}  // namespace
}  // namespace longhaul::kernels
