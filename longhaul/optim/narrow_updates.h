#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "longhaul/layout/buckets.h"
#include "longhaul/optim/composite_updates.h"

// Updates on devices without 64-bit numbers, which cannot write to a part of a tensor
// (tensor::DeviceLimits): sums are fp32 sums of blocks, and every tensor is written
// whole.

namespace longhaul::optim {

/// The elements of a block of squares. The fp32 sum of a block has a relative error of
/// about 1e-6.
inline constexpr int64_t kBlockElements = int64_t{1} << 16;

/// Returns the number of blocks of `count` elements. The last one may be smaller.
int64_t num_square_blocks(int64_t count);

/// Returns the sums of squares of the blocks of each tensor, one tensor after the other,
/// fp32 [blocks] on the tensors' device; fp32 [0] on the host if there are no tensors.
at::Tensor block_squares(at::TensorList tensors);

/// Makes the first pass of LAMB (lamb.h) for all elements of `t`. Returns the sums of
/// squares of weights and updates over the elements `counted`, fp32 [1, 2]; an undefined
/// tensor if no elements are counted. `counted` counts elements of `t`.
at::Tensor lamb_moments_narrow(const AdamWTensors& t, const AdamWStep& step,
                               layout::FlatRange counted);

}  // namespace longhaul::optim
