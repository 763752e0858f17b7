#pragma once

#include "longhaul/ops/gated_product.h"

namespace longhaul::ops {

/// silu(gate) * up.
inline at::Tensor swiglu(const at::Tensor& gate, const at::Tensor& up, bool fused) {
  return gated_product(gate, up, Activation::Silu, fused);
}

}  // namespace longhaul::ops
