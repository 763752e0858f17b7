#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "longhaul/base/error.h"
#include "longhaul/base/file.h"
#include "longhaul/format/tensor_slice.h"

namespace longhaul::checkpoint {

// The kinds of state that a checkpoint holds per parameter.
inline constexpr const char* kWeight = "weight";  ///< in the dtype of the master weights
inline constexpr const char* kExpAvg = "exp_avg";
inline constexpr const char* kExpAvgSq = "exp_avg_sq";

/// One box of one tensor of training state on this rank. `bytes` are its elements,
/// row-major in slice.extent, in slice.dtype. The bytes belong to the caller and stay
/// unchanged until the save or the capture that was given them has returned.
struct StateTensor {
  std::string kind;
  format::TensorSlice slice;
  std::span<const std::byte> bytes;
};

/// Calls use(box, bytes of the box) for elements [begin, end) of `slice`, row-major in
/// its extent. With d dims there are at most 2 * d - 1 boxes. The elements lie side by
/// side in `bytes`, in `dtype`.
template <typename Byte, typename Use>
void for_each_box(const format::TensorSlice& slice, int64_t begin, int64_t end,
                  format::DType dtype, std::span<Byte> bytes, Use use) {
  LH_CHECK(bytes.size() == static_cast<size_t>(end - begin) * format::dtype_size(dtype),
           "checkpoint", "{}: {} bytes for elements {} to {}", slice.name, bytes.size(),
           begin, end);
  for (format::TensorSlice& box : format::flat_range_boxes(slice, begin, end)) {
    const size_t length =
        static_cast<size_t>(box.num_elements()) * format::dtype_size(dtype);
    use(box, bytes.first(length));
    bytes = bytes.subspan(length);
  }
}

/// Appends elements [begin, end) of `slice`, which lie side by side in `bytes` in the
/// slice's dtype, as boxes.
inline void append_flat_range(const std::string& kind, const format::TensorSlice& slice,
                              int64_t begin, int64_t end,
                              std::span<const std::byte> bytes,
                              std::vector<StateTensor>& out) {
  for_each_box(slice, begin, end, slice.dtype, bytes, [&](auto& box, auto part) {
    out.push_back({kind, std::move(box), part});
  });
}

/// Returns the bytes that a tensor's box takes in its own dtype.
inline uint64_t bytes_in(const format::TensorSlice& slice) {
  return static_cast<uint64_t>(slice.num_elements()) * format::dtype_size(slice.dtype);
}

/// Returns the bytes that a tensor takes among others in memory: a multiple of 64, so
/// that elements stay aligned and no two tensors share a cache line.
inline uint64_t padded(uint64_t bytes) { return (bytes + 63) / 64 * 64; }

/// A file that goes with the weights (config.json, tokenizer.json, a licence ...). It is
/// copied from `source`, or written from `text` when `source` is empty. `name` is a
/// relative path.
struct CarriedFile {
  std::string name;
  fs::path source;
  std::string text;
};

}  // namespace longhaul::checkpoint
