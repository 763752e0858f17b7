#pragma once

#include <ATen/core/Tensor.h>

namespace longhaul::ops {

/// silu(gate) * up (Shazeer, "GLU Variants Improve Transformer"); fp32 inside.
/// gate, up and the result: [T, F] in one dtype. Where gate and up are slices of one
/// matrix, so are their gradients (side_by_side.h).
at::Tensor swiglu(const at::Tensor& gate, const at::Tensor& up, bool fused);

}  // namespace longhaul::ops
