#pragma once

#include <ATen/core/Tensor.h>

#include "longhaul/families/activation.h"

namespace longhaul::ops {

/// GELU of x in the form that `activation` names, element by element; fp32 inside.
at::Tensor gelu(const at::Tensor& x, Activation activation, bool fused);

}  // namespace longhaul::ops
