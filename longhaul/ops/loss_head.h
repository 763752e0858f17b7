#pragma once

#include <ATen/core/Tensor.h>

#include <functional>

#include "longhaul/families/description/kept.h"
#include "longhaul/ops/linear/weight_gradients.h"

namespace longhaul::ops {

/// The settings of the loss head.
struct LossHeadOptions {
  /// One over the number of targets of the global batch. Every term is a sum times
  /// `scale`.
  double scale = 1.0;
  /// Weight of the squared log-partition (Chowdhery et al., "PaLM", section 5); 0: off.
  double z_loss = 0.0;
  bool fused = true;
  /// Replaces `lse` [R] and `picked` [R], fp32, of this part of the vocabulary by the
  /// values over all `vocabulary_parts`, in place. Is called once a chunk, for the same
  /// rows on every rank. The function is empty if the weight is the whole vocabulary.
  std::function<void(at::Tensor& lse, at::Tensor& picked)> combine = nullptr;
  int64_t vocabulary_parts = 1;
  /// Bytes of logits that exist at once on a device that is not a CPU.
  int64_t device_logits_bytes = kDeviceLogitsBytes;
  /// The bias of the logits, [V], split as the weight is; null: there is no bias.
  tensor::ParameterPtr bias = nullptr;
  /// The logits, with the bias, are divided by this number (`logits_scaling` of Granite)
  /// and rounded to the compute dtype once more, as the code of a model does. The loss
  /// and the z-loss are those of the quotients.
  double logits_divisor = 1.0;
  /// The divided logits x become cap * tanh(x / cap), rounded at each step as the code of
  /// a model does (`final_logit_softcapping` of Gemma 2); 0: they stay. The loss and the
  /// z-loss are those of the results, which exist beside tanh(x / cap) until the chunk's
  /// gradient is formed.
  double logits_cap = 0.0;
  /// How often each row counts in the loss and in its gradient, fp32 [T]; a weight may be
  /// negative. Undefined: each row counts once.
  at::Tensor row_weights = {};
};

struct LossHeadResult {
  /// The root of the backward: scale * (cross-entropy sum + z-loss sum), an fp32 scalar.
  at::Tensor loss;
  /// The sum of the cross-entropy over valid targets, weighted by `row_weights` and
  /// unscaled: an fp64 scalar on the device of h. On a device without 64-bit numbers fp32
  /// sums of blocks of rows, which the host adds up (nn::Losses).
  at::Tensor cross_entropy_sum;
};

/// Computes the cross-entropy of logits = (h W^T + b) / divisor, which may be capped,
/// without ever holding all logits: rows are taken in chunks. `h` is [T, K] in the
/// compute dtype, W is [V, K], and `targets` is int64 [T], or int32 on a device without
/// 64-bit numbers, where a negative target means that there is none. In grad mode the
/// gradients of each chunk are formed while its logits are in cache: dW and db are added
/// to the accumulators at once, and dh is kept for the backward. So the loss has to be
/// the root of the backward, with gradient 1.
///
/// With a part of the vocabulary, every rank has the loss over all parts, and dh is the
/// share of this part: the sum over parts is the gradient. Per chunk only the
/// log-sum-exps and the target logits of the rows cross the ranks (Shoeybi et al.,
/// "Megatron-LM", section 3).
LossHeadResult loss_head(const at::Tensor& h, const tensor::ParameterPtr& weight,
                         const at::Tensor& targets, const LossHeadOptions& options);

/// Returns the log-probability of each row's target, log softmax(logits)[target], fp32
/// [T]; 0 for a row without a target. The arguments are those of loss_head, and the
/// chunks and kernels those of its forward, so the values are those of its cross-entropy.
/// No gradient is formed. `scale`, `z_loss` and `row_weights` have no effect. Every rank
/// of a split vocabulary has the result over all parts; then Collective, through
/// `combine`.
at::Tensor token_log_probs(const at::Tensor& h, const tensor::ParameterPtr& weight,
                           const at::Tensor& targets, const LossHeadOptions& options);

/// Computes the cross-entropy of logits [R, V] that are few, final and of the whole
/// vocabulary; targets is int64 [R], where a negative target means that there is none. In
/// grad mode the gradient of the logits is formed together with the loss.
LossHeadResult cross_entropy(const at::Tensor& logits, const at::Tensor& targets,
                             const LossHeadOptions& options);

}  // namespace longhaul::ops
