#pragma once

#include <ATen/core/Tensor.h>

namespace longhaul::ops {

/// x times the normal distribution's share below it, or that by its tanh form (Hendrycks
/// and Gimpel, "Gaussian Error Linear Units", section 2).
enum class Gelu { Exact, Tanh };

/// gelu(x), element by element; fp32 inside.
at::Tensor gelu(const at::Tensor& x, Gelu form, bool fused);

}  // namespace longhaul::ops
