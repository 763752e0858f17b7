#pragma once

#include <ATen/core/Tensor.h>

#include "longhaul/families/layers/activation.h"

namespace longhaul::ops {

/// Returns activation(gate) * up (Shazeer, "GLU Variants Improve Transformer"), computed
/// in fp32 and rounded once. With Silu this is SwiGLU, with GELU in either form GEGLU.
/// gate, up and the result are [T, F] and have one dtype. If gate and up are slices of
/// one matrix, so are their gradients (side_by_side.h). All activations keep the same
/// tensors for the backward. With `weights`, fp32 [T], row t is multiplied by weights[t]
/// before it is rounded.
at::Tensor gated_product(const at::Tensor& gate, const at::Tensor& up,
                         Activation activation, bool fused,
                         const at::Tensor& weights = {});

}  // namespace longhaul::ops
