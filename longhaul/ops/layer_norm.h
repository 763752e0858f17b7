#pragma once

#include <ATen/core/Tensor.h>

#include "longhaul/tensor/parameter.h"

namespace longhaul::ops {

/// y = (x - mean) / sqrt(variance + eps) * w + b over the last dim (Ba et al., "Layer
/// Normalization"), in fp32 inside, rounded once. x [T, H], weight and bias [H], y [T, H]
/// in x's dtype. Weight and bias take their gradients in the backward.
at::Tensor layer_norm(const at::Tensor& x, const ParameterPtr& weight,
                      const ParameterPtr& bias, double eps);

}  // namespace longhaul::ops
