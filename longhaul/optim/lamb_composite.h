#pragma once

#include "longhaul/optim/adamw_composite.h"
#include "longhaul/optim/lamb.h"

namespace longhaul::optim {

/// lamb_moments, and lamb_apply at step.lr times `rate`, in ATen operations, for any
/// device: the reference of the fused form. LambSums are added to `sums`, fp64 [2] on the
/// device, where `rate` is, fp64 of one element: nothing is waited for. `most`: as
/// parts_of has it.
void lamb_moments_composite(const AdamWTensors& t, const AdamWStep& step,
                            const at::Tensor& sums, int64_t most = 0);
void lamb_apply_composite(const AdamWTensors& t, const AdamWStep& step,
                          const at::Tensor& rate, int64_t most = 0);

}  // namespace longhaul::optim
