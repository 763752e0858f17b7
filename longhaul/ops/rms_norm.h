#pragma once

#include <ATen/core/Tensor.h>

#include "longhaul/families/layers/rms_form.h"
#include "longhaul/ops/attention/heads.h"
#include "longhaul/tensor/parameter.h"

namespace longhaul::ops {

/// Returns y = cast(x / sqrt(mean(x^2) + eps)) * w over the last dim (Zhang and Sennrich,
/// "Root Mean Square Layer Normalization"), or the formula of another form. The
/// statistics are in fp32, and the cast to the dtype of x is where transformers has it. x
/// is [T, H], weight [H], y [T, H]. The backward adds the gradient of the weight to the
/// weight's accumulator.
at::Tensor rms_norm(const at::Tensor& x, const tensor::ParameterPtr& weight, double eps,
                    bool fused, RmsForm form = RmsForm::WeightAfterCast);

/// The sum that a block adds to, and the norm of the sum.
struct ResidualNorm {
  at::Tensor sum, normed;
};

/// Returns sum = x + delta, or x if delta is undefined, and rms_norm(sum), all [T, H].
/// The backward of the norm adds the gradient that `sum` has from later uses to the
/// gradient through the norm, in fp32 and rounded once. `sum` may lie in the memory of x,
/// and must not be written.
ResidualNorm residual_rms_norm(const at::Tensor& x, const at::Tensor& delta,
                               const tensor::ParameterPtr& weight, double eps, bool fused,
                               RmsForm form = RmsForm::WeightAfterCast);

/// The weights [D] of the norms of the heads of queries and keys.
struct HeadNorms {
  tensor::ParameterPtr q, k;
  double eps = 0.0;
  RmsForm form = RmsForm::WeightAfterCast;
};

/// Returns rms_norm() of each head of q and k over D; v is not normed. The heads are read
/// where they lie, which may be one matrix (joint_linear), and kept there for the
/// backward. The normed heads are tensors of their own that nothing keeps, so they may be
/// written. The gradients of the fused form are laid out like q, k and v (ColumnLayout),
/// so that joint_linear gets its gradients as one matrix.
Heads rms_norm_heads(const Heads& heads, const HeadNorms& norms, bool fused);

}  // namespace longhaul::ops
