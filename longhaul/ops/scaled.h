#pragma once

#include <ATen/core/Tensor.h>

namespace longhaul::ops {

/// x * scale: the product in fp32, with `scale` in fp32, rounded once to x's dtype, and
/// the gradient alike: what LibTorch, and so a model's code in transformers, makes of a
/// tensor times a Python float. The backward keeps no tensor. A scale of 1 is x itself.
at::Tensor scaled(const at::Tensor& x, double scale);

/// `scale` as a tensor of this dtype holds it: where a model's code turns the number into
/// a tensor of its weights' dtype before it multiplies (Gemma 3's embedding).
double rounded_to(at::ScalarType type, double scale);

}  // namespace longhaul::ops
