#pragma once

#include "longhaul/nn/forward_context.h"

namespace longhaul::nn {

/// Returns x. The backward of x also forms the gradient of an auxiliary term of the loss.
/// `sum` is a scalar: the part of the term that comes from the positions that this rank
/// has outside of split regions.
at::Tensor with_auxiliary_loss(const at::Tensor& x, const at::Tensor& sum, size_t term,
                               const ForwardContext& context);

}  // namespace longhaul::nn
