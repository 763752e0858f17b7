#pragma once

#include "longhaul/nn/forward_context.h"

namespace longhaul::nn {

/// Returns x. The backward of x also forms the gradient of an auxiliary term of the loss.
/// `sum` is a scalar: this rank's share of the term, from the positions that the rank has
/// between tp-split layers.
at::Tensor with_auxiliary_loss(const at::Tensor& x, const at::Tensor& sum, size_t term,
                               const ForwardContext& context);

}  // namespace longhaul::nn
