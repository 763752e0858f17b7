#pragma once

#include <cstdint>

#include "longhaul/layout/activations.h"
#include "longhaul/plan/machine.h"

namespace longhaul::plan {

/// Seconds of a unit's or a chunk's work for one micro batch. Each number is that of one
/// forward.
struct ForwardSeconds {
  double products = 0.0;
  double frozen = 0.0;  ///< the part of products whose weights have no gradient
  double attention = 0.0;
  double moved = 0.0;           ///< kept tensors, through memory once
  double again_products = 0.0;  ///< what the backward computes once more
  double again_attention = 0.0;
  double again_moved = 0.0;

  void add(const ForwardSeconds& other) {
    products += other.products;
    frozen += other.frozen;
    attention += other.attention;
    moved += other.moved;
    again_products += other.again_products;
    again_attention += other.again_attention;
    again_moved += other.again_moved;
  }
  double again() const {
    return again_products + again_attention + kWritten * again_moved;
  }
  double forward() const { return products + attention + kWritten * moved; }
  double backward() const {
    return products + 2.0 * attention + kReadBack * moved + again();
  }
  double weight_gradients() const { return products - frozen; }

  /// A forward writes a tensor and reads it. A backward reads the tensor, and writes and
  /// reads its gradient.
  static constexpr double kWritten = 2.0;
  static constexpr double kReadBack = 3.0;
};

/// Returns the seconds of a unit's passes on the first rank of a tp group. The products
/// of experts have the rate of as many rows as each expert gets at even loads.
ForwardSeconds forward_seconds(const UnitDescription& unit, const layout::Passes& passes,
                               const layout::LayoutDescription& layout, int64_t seq_len,
                               const Machine& machine);

}  // namespace longhaul::plan
