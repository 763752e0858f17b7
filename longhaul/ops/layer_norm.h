#pragma once

#include <ATen/core/Tensor.h>

#include "longhaul/tensor/parameter.h"

namespace longhaul::ops {

/// Returns the LayerNorm of x over the last dim (Ba et al., "Layer Normalization"),
///   y = (x - mean) / sqrt(variance + eps) * w + b,
/// computed in fp32 and rounded once. x is [T, H], weight and bias are [H], and y [T, H]
/// has the dtype of x. The backward adds the gradients of weight and bias to their
/// accumulators.
at::Tensor layer_norm(const at::Tensor& x, const tensor::ParameterPtr& weight,
                      const tensor::ParameterPtr& bias, double eps);

}  // namespace longhaul::ops
