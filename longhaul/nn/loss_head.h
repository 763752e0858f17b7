#pragma once

#include "longhaul/nn/forward_context.h"
#include "longhaul/ops/loss_head.h"

namespace longhaul::nn {

/// The first term of the loss by ops::loss_head of the head's weight, whose vocabulary
/// may be split: hidden [T, H] or this rank's part of T, the same loss on every rank of a
/// SplitRegion. Its sum is added to context.losses. Collective where there is a region.
/// The logits are divided by `logits_divisor`.
at::Tensor loss_head(const at::Tensor& hidden, const ParameterPtr& weight,
                     const ForwardContext& context, double logits_divisor = 1.0);

/// The same, with a bias, of rows [R, H] that have entered the region before: `targets`
/// [R] int64.
at::Tensor loss_head_inside(const at::Tensor& rows, const at::Tensor& targets,
                            const ParameterPtr& weight, const ParameterPtr& bias,
                            size_t term, const ForwardContext& context);

/// Numbers of the tokens that have a target of the loss's first term, ascending, int64.
at::Tensor rows_with_target(const Batch& batch);

/// One term of the loss by ops::cross_entropy of few logits [R, V] that are the same on
/// every rank of a region: each has an equal part of the gradient.
at::Tensor loss_inside(const at::Tensor& logits, size_t term,
                       const ForwardContext& context);

}  // namespace longhaul::nn
