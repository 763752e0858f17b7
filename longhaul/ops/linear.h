#pragma once

#include <ATen/core/Tensor.h>

#include "longhaul/ops/linear_input.h"
#include "longhaul/ops/weight_gradients.h"

namespace longhaul::ops {

/// y = x W^T. x [T, K] in the compute dtype, W [N, K], y [T, N].
/// The backward computes dx = dy W from the handle's weight at that time, and enqueues
/// (x, dy) for dW; x is kept for that, or taken from `input.again`. Without grad mode
/// `gradients` is not touched and may be null.
at::Tensor linear(const LinearInput& input, const ParameterPtr& weight,
                  const WeightGradientsPtr& gradients);

}  // namespace longhaul::ops
