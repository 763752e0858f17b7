#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace longhaul::train {

/// Where items lie in blocks of memory.
struct Packing {
  struct Place {
    size_t block = 0;
    uint64_t offset = 0;  ///< in bytes
  };
  std::vector<uint64_t> blocks;  ///< bytes of each block, a power of two
  std::vector<Place> places;     ///< one for each item
};

/// Packs items of these bytes into blocks of powers of two, which hold little more than
/// the items: where each item is less than a tenth of all, at most a tenth more. LibTorch
/// rounds each block of pinned memory up to a power of two, so that a block for each item
/// could take twice their bytes. Each item begins at a multiple of 64 bytes.
Packing pack(const std::vector<uint64_t>& items);

/// Returns pinned host memory for tensors of a device, one contiguous tensor for each, of
/// the same sizes and dtypes. The tensors share blocks as pack() says.
std::vector<at::Tensor> pinned_for(const std::vector<at::Tensor>& tensors);

}  // namespace longhaul::train
