#pragma once

#include <ATen/core/Tensor.h>

#include <functional>

#include "longhaul/families/kept.h"
#include "longhaul/ops/linear/weight_gradients.h"

namespace longhaul::ops {

/// What the loss head is told besides its tensors.
struct LossHeadOptions {
  /// One over the targets of the global batch: every term is a sum times this.
  double scale = 1.0;
  /// Weight of the squared log-partition (Chowdhery et al., "PaLM", section 5); 0: off.
  double z_loss = 0.0;
  bool fused = true;
  /// Where the weight is a part of the vocabulary: makes of this part's `lse` [R] and
  /// `picked` [R], fp32, those of all `vocabulary_parts`, in place; called once a chunk,
  /// of the same rows on every rank. Empty: the weight is the whole vocabulary.
  std::function<void(at::Tensor& lse, at::Tensor& picked)> combine = nullptr;
  int64_t vocabulary_parts = 1;
  /// Of the logits that exist at once on another device than a CPU.
  int64_t device_logits_bytes = kDeviceLogitsBytes;
  /// [V], added to the logits; split as the weight is. Null: none.
  ParameterPtr bias = nullptr;
  /// The logits, with the bias, are divided by it (`logits_scaling` of Granite) and
  /// rounded to the compute dtype once more, as a model's code does; everything above is
  /// of the quotients, z-loss included.
  double logits_divisor = 1.0;
};

struct LossHeadResult {
  /// scale * (cross-entropy sum + z-loss sum), fp32 scalar, the root of the backward.
  at::Tensor loss;
  /// Sum of the cross-entropy over valid targets, unscaled: an fp64 scalar where h lies.
  at::Tensor cross_entropy_sum;
};

/// Cross-entropy of logits = (h W^T + b) / divisor without ever holding all logits: rows
/// are taken in chunks. h [T, K] in the compute dtype, W [V, K], targets [T] int64,
/// negative: no target. With grad mode the gradients of each chunk are formed while its
/// logits are in cache: dW and db go straight to the accumulators, dh is kept for the
/// backward. So the result's loss has to be the root of the backward, with gradient 1.
/// With a part of the vocabulary, the loss is that of all parts on every rank, and dh is
/// this part's share: the sum over parts is the gradient. Per chunk only the rows'
/// log-sum-exps and target logits cross the ranks (Shoeybi et al., "Megatron-LM",
/// section 3).
LossHeadResult loss_head(const at::Tensor& h, const ParameterPtr& weight,
                         const at::Tensor& targets, const LossHeadOptions& options);

/// Cross-entropy of logits [R, V] that are few, whole and final, targets [R] int64,
/// negative: no target: as loss_head, their gradient is formed at once.
LossHeadResult cross_entropy(const at::Tensor& logits, const at::Tensor& targets,
                             const LossHeadOptions& options);

}  // namespace longhaul::ops
