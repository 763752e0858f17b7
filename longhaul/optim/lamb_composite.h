#pragma once

#include "longhaul/optim/adamw_composite.h"
#include "longhaul/optim/lamb.h"

namespace longhaul::optim {

/// The two passes of LAMB (lamb.h) in ATen operations, for any device: the reference of
/// the fused form. The first pass adds LambSums to `sums`, fp64 [2]; the second moves
/// masters by step.lr times `rate`, fp64 of one element. Both tensors are on the device,
/// and the host does not wait. `most`: as in parts_of().
void lamb_moments_composite(const AdamWTensors& t, const AdamWStep& step,
                            const at::Tensor& sums, int64_t most = 0);
void lamb_apply_composite(const AdamWTensors& t, const AdamWStep& step,
                          const at::Tensor& rate, int64_t most = 0);

}  // namespace longhaul::optim
