#pragma once

#include <ATen/core/Tensor.h>

namespace longhaul::ops {

/// Returns x * scale, multiplied in fp32 with `scale` in fp32 and rounded once to the
/// dtype of x; the gradient is computed in the same way. LibTorch, and so the code of a
/// model in transformers, multiplies a tensor by a Python float like this. The backward
/// keeps no tensor. Returns x itself for a scale of 1.
at::Tensor scaled(const at::Tensor& x, double scale);

/// Returns `scale` rounded to a dtype, for models whose code turns the number into a
/// tensor of the dtype of the weights before it multiplies (the embedding of Gemma 3).
double rounded_to(at::ScalarType type, double scale);

}  // namespace longhaul::ops
