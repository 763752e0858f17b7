#pragma once

#include "longhaul/families/network.h"
#include "longhaul/nn/forward_context.h"
#include "longhaul/ops/rms_norm.h"
#include "longhaul/tensor/parameter_set.h"

namespace longhaul::nn {

/// ops::rms_norm or ops::layer_norm with its parameters [H].
class Norm {
 public:
  Norm(ParameterSet& parameters, const families::Norm& form);
  /// x [T, H] -> [T, H].
  at::Tensor forward(const at::Tensor& x, const ForwardContext& context) const;
  /// The norm of x + delta, or of x where delta is undefined, and that sum, in one
  /// operation where the kind of norm has such a one.
  ops::ResidualNorm residual(const at::Tensor& x, const ForwardContext& context,
                             const at::Tensor& delta) const;

 private:
  ParameterPtr weight_;
  ParameterPtr bias_;  ///< of a LayerNorm; null: an RMS norm
  double eps_;
  RmsForm form_;
};

}  // namespace longhaul::nn
