#pragma once

#include "longhaul/optim/adamw_composite.h"
#include "longhaul/optim/kernels/lamb.h"

namespace longhaul::optim {

/// Makes the first pass of LAMB (lamb.h) in ATen operations, on any device, in parts of
/// at most `most` elements (parts_of). This is the reference of the fused form. Adds
/// LambSums to `sums`, fp64 [2], on the device. The host does not wait.
void lamb_moments_composite(const AdamWTensors& t, const AdamWStep& step,
                            const at::Tensor& sums, int64_t most = 0);
/// Makes the second pass in the same way: moves masters by step.lr times `rate`, fp64 of
/// one element, on the device.
void lamb_apply_composite(const AdamWTensors& t, const AdamWStep& step,
                          const at::Tensor& rate, int64_t most = 0);

}  // namespace longhaul::optim
