#pragma once

#include <functional>

#include "longhaul/ops/attention/heads.h"
#include "longhaul/tensor/parameter.h"

namespace longhaul::ops {

/// Weights of the norms of queries and of keys, each over all features of all heads.
struct WideNorms {
  ParameterPtr q, k;  ///< of all heads * D; a rank holds those of its heads
  double eps = 0.0;
  /// Where ranks share the heads: sums fp32 [2, T] over those ranks, in place. It must
  /// live until the backward has run. Empty: all heads are here.
  std::function<void(at::Tensor& sums)> combine = nullptr;
};

/// y = cast(w * x / sqrt(mean(x^2) + eps)), where the mean is over the features of all
/// heads of a token, on whichever ranks they are; statistics and both products in fp32,
/// as transformers has it for OLMo 2. q and k are normed, v is handed on. Each rank has
/// the heads of its weights' slices; key heads that several ranks hold (ShardPlan) are
/// counted once. The weights' gradients are added to their accumulators during the
/// backward.
/// `combine` is called once in the forward, of the sums of squares, and once in the
/// backward, of the sums of w * x * dy: Collective where it is.
/// These are plain tensor operations, so that there is no fused form. The backward keeps
/// the heads where they lie, which may be one matrix (joint_linear), and fp32 [2, T]. The
/// normed heads are tensors of their own, which nothing keeps: they may be written. The
/// gradients lie as q, k and v do (ColumnLayout).
Heads wide_norm_heads(const Heads& heads, const WideNorms& norms);

}  // namespace longhaul::ops
