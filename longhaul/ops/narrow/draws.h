#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <cstdint>

namespace longhaul::ops::narrow {

/// Four words of 32 bits each, as int32 tensors of the same bits.
using Words = std::array<at::Tensor, 4>;

/// Returns the four words of Philox4x32-10 for the counters `counter`, whose tensors
/// broadcast. Products of int32 wrap around.
Words philox(uint64_t key, Words counter);

/// Returns whether each word is at least `bound`, as numbers without a sign: 1 or 0 in
/// fp32.
at::Tensor at_least(const at::Tensor& words, uint32_t bound);

}  // namespace longhaul::ops::narrow
