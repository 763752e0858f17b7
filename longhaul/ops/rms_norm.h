#pragma once

#include <ATen/core/Tensor.h>

#include "longhaul/tensor/parameter.h"

namespace longhaul::ops {

/// y = cast(x / sqrt(mean(x^2) + eps)) * w over the last dim (Zhang and Sennrich, "Root
/// Mean Square Layer Normalization"); the statistics in fp32, the cast to x's dtype
/// before the product, as transformers does it. x [T, H], weight [H], y [T, H]. The
/// weight's gradient is added to its accumulator during the backward.
at::Tensor rms_norm(const at::Tensor& x, const ParameterPtr& weight, double eps,
                    bool fused);

}  // namespace longhaul::ops
