#pragma once

#include "longhaul/nn/forward_context.h"

namespace longhaul::nn {

/// x, whose backward forms the gradient of an auxiliary term of the loss as well: `sum`
/// is what this rank's positions, outside of split regions, add to it, a scalar.
at::Tensor with_auxiliary_loss(const at::Tensor& x, const at::Tensor& sum, size_t term,
                               const ForwardContext& context);

}  // namespace longhaul::nn
