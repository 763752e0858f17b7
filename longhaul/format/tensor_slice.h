#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
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

/// The elements that both boxes of one tensor have, in global coordinates, with `a`'s
/// name and dtype; nothing when there are none. The global shapes must be equal.
std::optional<TensorSlice> intersect(const TensorSlice& a, const TensorSlice& b);

/// True for the float dtypes, which convert into each other.
bool is_float(DType dtype);

/// `count` elements of dtype `src_dtype` to `dst_dtype`, round to nearest even. Equal
/// dtypes are copied; other than float dtypes must be equal. Pointers need no alignment.
void convert_elements(const std::byte* src, DType src_dtype, std::byte* dst,
                      DType dst_dtype, size_t count);

/// Copies the elements that both boxes have from one row-major buffer to another, with
/// conversion. Each buffer holds exactly its box in its dtype. Returns elements copied.
int64_t copy_box(const TensorSlice& src, std::span<const std::byte> src_bytes,
                 const TensorSlice& dst, std::span<std::byte> dst_bytes);

/// Reads bytes.size() bytes at `offset` of a stored box (0 is its first element).
using ReadRange = std::function<void(uint64_t offset, std::span<std::byte> bytes)>;

/// The same where `stored` lies in a file: reads only byte ranges that hold wanted rows,
/// at most about `window_bytes` at a time. Returns elements copied.
int64_t read_box(const ReadRange& read, const TensorSlice& stored, const TensorSlice& dst,
                 std::span<std::byte> dst_bytes,
                 uint64_t window_bytes = uint64_t{64} << 20);

/// "model.norm.weight [0:16, 0:8] of [64, 8]": for messages.
std::string describe_slice(const TensorSlice& slice);
/// "[64, 8]".
std::string describe_shape(const std::vector<int64_t>& shape);

}  // namespace longhaul
