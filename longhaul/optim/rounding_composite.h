#pragma once

#include <ATen/core/Tensor.h>

#include "longhaul/optim/adamw_composite.h"

namespace longhaul::optim {

/// Returns fp32 values rounded to bf16 stochastically, in ATen operations. The bits are
/// those of the fused loops.
at::Tensor rounded_composite(const at::Tensor& x, const Rounding& rounding, RoundingOf of,
                             int64_t update);

/// Writes fp32 values to a tensor of the state `t`, rounded as `t` says.
void store_composite(const at::Tensor& into, const at::Tensor& x, RoundingOf of,
                     const AdamWTensors& t, int64_t update);

}  // namespace longhaul::optim
