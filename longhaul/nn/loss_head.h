#pragma once

#include "longhaul/nn/forward_context.h"
#include "longhaul/ops/loss_head.h"

namespace longhaul::nn {

/// ops::loss_head of the head's weight, whose vocabulary may be split: hidden [T, H] or
/// this rank's part of T, targets [T], the same loss on every rank of a SplitRegion.
/// Collective there.
ops::LossHeadResult loss_head(const at::Tensor& hidden, const ParameterPtr& weight,
                              const at::Tensor& targets, const ForwardContext& context,
                              const ops::LossHeadOptions& options);

}  // namespace longhaul::nn
