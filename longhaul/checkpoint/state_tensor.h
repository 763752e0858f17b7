#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "longhaul/base/file.h"
#include "longhaul/format/tensor_slice.h"

namespace longhaul::checkpoint {

// The kinds of state that a checkpoint holds per parameter.
inline constexpr const char* kWeight = "weight";  ///< in the master dtype
inline constexpr const char* kExpAvg = "exp_avg";
inline constexpr const char* kExpAvgSq = "exp_avg_sq";

/// One box of one tensor of training state on this rank. `bytes` are its elements,
/// row-major in slice.extent, in slice.dtype; they belong to the caller and stay
/// unchanged until the save (or the capture) that was given them has returned.
struct StateTensor {
  std::string kind;
  TensorSlice slice;
  std::span<const std::byte> bytes;
};

/// Appends elements [begin, end) of `slice`, which lie side by side in `bytes` (the first
/// byte is that of element `begin`), as at most 2 * rank - 1 boxes. For flat buffers.
void append_flat_range(const std::string& kind, const TensorSlice& slice, int64_t begin,
                       int64_t end, std::span<const std::byte> bytes,
                       std::vector<StateTensor>& out);

/// A file that goes with the weights (config.json, tokenizer.json, a licence ...): copied
/// from `source`, or written from `text` when `source` is empty. `name` is relative.
struct CarriedFile {
  std::string name;
  fs::path source;
  std::string text;
};

}  // namespace longhaul::checkpoint
