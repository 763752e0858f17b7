#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "longhaul/format/tensor_slice.h"
#include "longhaul/imports/foreign_files.h"

namespace longhaul::imports {

/// A tensor as a file stores it.
struct StoredTensor {
  size_t file = 0;
  uint64_t begin = 0;  ///< file offset of the first element
  format::DType dtype = format::DType::F32;
  std::vector<int64_t> shape;
  std::vector<int64_t> strides;  ///< in elements

  bool contiguous() const;
};

/// A tensor that is put together from boxes of stored tensors. Shards of tensor
/// parallelism, fused projections, permuted heads and optimizer shards become whole
/// tensors by it. A mosaic knows where elements lie, and read() reads them.
class Mosaic {
 public:
  Mosaic() = default;
  /// Makes a tensor without any parts yet.
  Mosaic(std::vector<int64_t> shape, format::DType dtype);
  /// Makes a tensor that is one stored tensor.
  explicit Mosaic(const StoredTensor& tensor);
  /// Concatenates tensors along one dim. Throws InputError that names `what` if ranks,
  /// dtypes or the other extents differ.
  static Mosaic concatenate(const std::vector<Mosaic>& parts, size_t dim,
                            const std::string& what);

  const std::vector<int64_t>& shape() const { return shape_; }
  format::DType dtype() const { return dtype_; }
  int64_t num_elements() const;
  uint64_t bytes() const;

  /// Puts the box [from, from + extent) of `part` at `to`. The dtypes must be equal.
  void put(const Mosaic& part, const std::vector<int64_t>& from,
           const std::vector<int64_t>& extent, const std::vector<int64_t>& to);
  /// Returns the indices [begin, end) of one dim as a mosaic of its own.
  Mosaic narrow(size_t dim, int64_t begin, int64_t end) const;

  /// Throws InputError unless every element has been put exactly once.
  void check_complete(const std::string& what) const;
  /// Reads the elements of the box, row-major, converted to `dst`.
  void read(const ForeignFiles& files, const std::vector<int64_t>& offset,
            const std::vector<int64_t>& extent, format::DType dst,
            std::span<std::byte> out) const;
  /// Reads the whole tensor as read() does.
  void read_all(const ForeignFiles& files, format::DType dst,
                std::span<std::byte> out) const;

 private:
  struct Piece {
    std::vector<int64_t> offset;  // first element in this tensor
    std::vector<int64_t> extent;
    std::vector<int64_t> from;  // first element in the stored tensor
    StoredTensor stored;
  };
  std::vector<int64_t> shape_;
  format::DType dtype_ = format::DType::F32;
  std::vector<Piece> pieces_;
};

/// Counts the elements that differ in any bit between two mosaics of one shape. Reads a
/// part of each mosaic at a time.
int64_t count_differences(const ForeignFiles& files, const Mosaic& a, const Mosaic& b);

}  // namespace longhaul::imports
