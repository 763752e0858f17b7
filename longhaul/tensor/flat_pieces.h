#pragma once

#include <functional>
#include <span>

#include "longhaul/tensor/flat_buffers.h"

namespace longhaul::tensor {

/// A contiguous part of a tensor inside a bucket.
struct FlatPiece {
  const FlatMember* member = nullptr;
  layout::FlatRange in_member;  ///< range of elements of the parameter's slice
  int64_t in_bucket = 0;        ///< first element in the bucket
};

/// Returns the parts of tensors in a range of a bucket, in the order of the bucket.
/// Padding is left out.
std::vector<FlatPiece> pieces_in(const Bucket& bucket, layout::FlatRange range);

/// Reads elements [begin, end) of a slice, row-major in its extent, in the given dtype.
using FlatReader =
    std::function<void(const format::TensorSlice& slice, int64_t begin, int64_t end,
                       format::DType dtype, std::span<std::byte> out)>;

/// Returns the memory of a contiguous CPU tensor.
std::span<std::byte> bytes_of(const at::Tensor& tensor);

}  // namespace longhaul::tensor
