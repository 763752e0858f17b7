#pragma once

#include <ATen/core/Tensor.h>

#include "longhaul/families/layers/activation.h"

namespace longhaul::ops {

/// Returns the GELU of each element of x in the form that `activation` names, computed in
/// fp32.
at::Tensor gelu(const at::Tensor& x, Activation activation, bool fused);

}  // namespace longhaul::ops
