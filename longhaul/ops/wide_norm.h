#pragma once

#include <functional>

#include "longhaul/ops/attention/heads.h"
#include "longhaul/tensor/parameter.h"

namespace longhaul::ops {

/// The weights of the norms of queries and of keys. Each norm is over all features of all
/// heads of a token.
struct WideNorms {
  tensor::ParameterPtr q, k;  ///< [all heads * D], cut to the heads of this rank
  double eps = 0.0;
  /// Adds fp32 [2, T] over the ranks that share the heads, in place. The function must
  /// stay valid until the backward has run; it is empty if all heads are on this rank.
  std::function<void(at::Tensor& sums)> combine = nullptr;
};

/// Norms q and k, and passes v on: y = cast(w * x / sqrt(mean(x^2) + eps)). The mean is
/// over the features of all heads of a token, on whichever ranks the heads are. The
/// statistics and both products are in fp32, as in transformers for OLMo 2. Each rank has
/// the heads of its slices of the weights; key heads that several ranks hold (ShardPlan)
/// are counted once. The backward adds the gradients of the weights to their
/// accumulators.
/// Calls `combine` once in the forward, with the sums of squares, and once in the
/// backward, with the sums of w * x * dy. Collective if `combine` is.
/// There is no fused form: these are plain tensor operations. The backward keeps the
/// heads where they lie, which may be one matrix (joint_linear), and fp32 [2, T]. The
/// normed heads are tensors of their own that nothing keeps, so they may be written. The
/// gradients lie as q, k and v do (ColumnLayout).
Heads wide_norm_heads(const Heads& heads, const WideNorms& norms);

}  // namespace longhaul::ops
