#pragma once

#include <ATen/core/Tensor.h>

#include "longhaul/families/rms_form.h"
#include "longhaul/ops/attention/heads.h"
#include "longhaul/tensor/parameter.h"

namespace longhaul::ops {

/// y = cast(x / sqrt(mean(x^2) + eps)) * w over the last dim (Zhang and Sennrich, "Root
/// Mean Square Layer Normalization"), or as another form has it; the statistics in fp32,
/// the cast to x's dtype where transformers has it. x [T, H], weight [H], y [T, H]. The
/// weight's gradient is added to its accumulator during the backward.
at::Tensor rms_norm(const at::Tensor& x, const ParameterPtr& weight, double eps,
                    bool fused, RmsForm form = RmsForm::WeightAfterCast);

/// What a block adds to, and its norm.
struct ResidualNorm {
  at::Tensor sum, normed;
};

/// sum = x + delta, or x where delta is undefined, and rms_norm(sum), all [T, H]. Who
/// adds to `sum` later has the gradients of both summed by the norm's backward, in fp32
/// and rounded once. `sum` may lie in the memory of x, and must not be written.
ResidualNorm residual_rms_norm(const at::Tensor& x, const at::Tensor& delta,
                               const ParameterPtr& weight, double eps, bool fused,
                               RmsForm form = RmsForm::WeightAfterCast);

/// Weights [D] of the norms of queries' and keys' heads.
struct HeadNorms {
  ParameterPtr q, k;
  double eps = 0.0;
  RmsForm form = RmsForm::WeightAfterCast;
};

/// rms_norm() of each head of q and k over D; v is not normed. The heads are read where
/// they lie, which may be one matrix (joint_linear), and kept there for the backward; the
/// normed ones are tensors of their own, which nothing keeps: they may be written. The
/// fused form's gradients lie as q, k and v do (ColumnLayout), so those of a joint
/// product are one matrix.
Heads rms_norm_heads(const Heads& heads, const HeadNorms& norms, bool fused);

}  // namespace longhaul::ops
