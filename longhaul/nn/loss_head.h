#pragma once

#include "longhaul/nn/forward_context.h"
#include "longhaul/ops/loss_head.h"

namespace longhaul::nn {

/// Returns the first term of the loss by ops::loss_head with the weight of the head,
/// whose vocabulary may be split. A batch of pairs has the loss of pair_loss() and its
/// figures. For orpo its second term is the loss of the chosen sides' tokens. A first
/// pass without gradients gives the log-probabilities of the tokens. The second pass is
/// that of ops::loss_head, with a weight for each token. `hidden` is [T, H], or has this
/// rank's tokens only; the loss is the same on every tp rank. Adds the sum of the term to
/// context.losses. The logits are divided by `logits_divisor` and capped at `logits_cap`
/// (ops::LossHeadOptions). Collective if there is a region.
at::Tensor loss_head(const at::Tensor& hidden, const tensor::ParameterPtr& weight,
                     const ForwardContext& context, double logits_divisor = 1.0,
                     double logits_cap = 0.0);

/// Returns term `term` of the loss by ops::loss_head, with a bias, for rows [R, H] inside
/// of a SplitRegion, which every tp rank has whole. Adds the sum of the term to
/// context.losses. `targets` is int64 [R].
at::Tensor loss_head_inside(const at::Tensor& rows, const at::Tensor& targets,
                            const tensor::ParameterPtr& weight,
                            const tensor::ParameterPtr& bias, size_t term,
                            const ForwardContext& context);

/// Returns the numbers of the tokens that have a target of the first term of the loss,
/// ascending, int64.
at::Tensor rows_with_target(const Batch& batch);

/// Returns a term of the loss by ops::cross_entropy of few logits [R, V]. The logits are
/// the same on every tp rank, and each rank forms an equal share of the gradient.
at::Tensor loss_inside(const at::Tensor& logits, size_t term,
                       const ForwardContext& context);

}  // namespace longhaul::nn
