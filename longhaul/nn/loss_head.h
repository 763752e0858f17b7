#pragma once

#include "longhaul/nn/forward_context.h"
#include "longhaul/ops/loss_head.h"

namespace longhaul::nn {

/// One term of the loss by ops::loss_head of the head's weight, whose vocabulary may be
/// split: hidden [T, H] or this rank's part of T, the same loss on every rank of a
/// SplitRegion. Its sum is added to context.losses. Collective where there is a region.
at::Tensor loss_head(const at::Tensor& hidden, const ParameterPtr& weight, size_t term,
                     const ForwardContext& context);

}  // namespace longhaul::nn
