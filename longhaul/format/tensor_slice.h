#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "longhaul/format/dtype.h"

namespace longhaul::format {

/// A part of a tensor. Sharding, ZeRO, checkpoints, resharding, import and export all use
/// this form. Invariant: rank(offset) = rank(extent) = rank(global_shape), and 0 <=
/// offset[d], offset[d] + extent[d] <= global_shape[d].
struct TensorSlice {
  std::string name;
  std::vector<int64_t> global_shape;
  DType dtype = DType::F32;
  std::vector<int64_t> offset;
  std::vector<int64_t> extent;

  /// Returns the slice that is the whole tensor.
  static TensorSlice whole(std::string name, std::vector<int64_t> shape, DType dtype);

  /// Returns the number of elements of this slice.
  int64_t num_elements() const;
  bool is_whole() const;
  /// Throws Error (Internal) if the invariant is broken.
  void check() const;

  bool operator==(const TensorSlice&) const = default;
};

/// Returns the elements [begin, end) of a slice, in row-major order of its extent, as at
/// most 2 * rank - 1 boxes in element order.
std::vector<TensorSlice> flat_range_boxes(const TensorSlice& slice, int64_t begin,
                                          int64_t end);

/// Returns the elements that two boxes of one tensor share, in global coordinates, with
/// the name and dtype of `a`, or nothing. The global shapes must be equal.
std::optional<TensorSlice> intersect(const TensorSlice& a, const TensorSlice& b);

/// Returns whether a dtype is a float type; float types convert into each other.
bool is_float(DType dtype);

/// Converts `count` elements from `src_dtype` to `dst_dtype`, rounded to nearest even.
/// Equal dtypes are copied, and dtypes other than floats must be equal. Pointers need no
/// alignment.
void convert_elements(const std::byte* src, DType src_dtype, std::byte* dst,
                      DType dst_dtype, size_t count);

/// Copies the elements that two boxes share from one row-major buffer to another, with
/// conversion. Each buffer holds exactly its box in its dtype. Returns the number of
/// copied elements.
int64_t copy_box(const TensorSlice& src, std::span<const std::byte> src_bytes,
                 const TensorSlice& dst, std::span<std::byte> dst_bytes);

/// A function that reads bytes.size() bytes at `offset` of a stored box, counted from its
/// first element.
using ReadRange = std::function<void(uint64_t offset, std::span<std::byte> bytes)>;

/// Copies the elements that two boxes share, as copy_box() does, from a box `stored` in a
/// file. Reads only byte ranges with wanted rows, about `window_bytes` at most at a time.
/// Returns the number of copied elements.
int64_t read_box(const ReadRange& read, const TensorSlice& stored, const TensorSlice& dst,
                 std::span<std::byte> dst_bytes,
                 uint64_t window_bytes = uint64_t{64} << 20);

/// Returns "model.norm.weight [0:16, 0:8] of [64, 8]" for messages.
std::string describe_slice(const TensorSlice& slice);
/// Returns "[64, 8]".
std::string describe_shape(const std::vector<int64_t>& shape);

}  // namespace longhaul::format
