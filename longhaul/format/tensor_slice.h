#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "longhaul/format/dtype.h"

namespace longhaul {

/// Which part of which tensor: the one way to say it, for sharding, ZeRO,
/// checkpoints, resharding, import and export.
/// Invariant: rank(offset) = rank(extent) = rank(global_shape), and
/// 0 <= offset[d], offset[d] + extent[d] <= global_shape[d].
struct TensorSlice {
  std::string name;
  std::vector<int64_t> global_shape;
  DType dtype = DType::F32;
  std::vector<int64_t> offset;
  std::vector<int64_t> extent;

  /// The slice that is the whole tensor.
  static TensorSlice whole(std::string name, std::vector<int64_t> shape, DType dtype);

  /// Elements of this slice, and of the whole tensor.
  int64_t num_elements() const;
  int64_t global_num_elements() const;
  bool is_whole() const;
  /// Throws Error (Internal) when the invariant is broken.
  void check() const;

  bool operator==(const TensorSlice&) const = default;
};

/// A part of a slice's own elements, [begin, end) in row-major order of the
/// slice's extent, as boxes: at most 2 * rank - 1 of them, in element order.
std::vector<TensorSlice> flat_range_boxes(const TensorSlice& slice, int64_t begin,
                                          int64_t end);

}  // namespace longhaul
