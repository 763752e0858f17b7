#pragma once

#include "longhaul/nn/forward_context.h"

namespace longhaul::nn {

/// Returns x. The backward of x also forms the gradient of an auxiliary term of the loss,
/// to which the positions of this rank, outside of split regions, add `sum`, a scalar.
at::Tensor with_auxiliary_loss(const at::Tensor& x, const at::Tensor& sum, size_t term,
                               const ForwardContext& context);

}  // namespace longhaul::nn
