#pragma once

#include "longhaul/optim/adamw_composite.h"
#include "longhaul/optim/lamb.h"

namespace longhaul::optim {

/// lamb_moments and lamb_apply in ATen operations, for any device: the reference of the
/// fused form. Sums take one round trip to the device.
LambSums lamb_moments_composite(const AdamWTensors& t, const AdamWStep& step);
void lamb_apply_composite(const AdamWTensors& t, const AdamWStep& step);

}  // namespace longhaul::optim
