#pragma once

#include <ATen/core/Tensor.h>

#include "longhaul/optim/adamw_composite.h"

namespace longhaul::optim {

/// fp32 values as stochastically rounded bf16, in ATen operations: to the bit what the
/// fused loops make of them.
at::Tensor rounded_composite(const at::Tensor& x, const Rounding& rounding, RoundingOf of,
                             int64_t update);

/// Writes fp32 values into a state tensor of `t`, rounded as it wants.
void store_composite(const at::Tensor& into, const at::Tensor& x, RoundingOf of,
                     const AdamWTensors& t, int64_t update);

}  // namespace longhaul::optim
