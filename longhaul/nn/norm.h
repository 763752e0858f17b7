#pragma once

#include "longhaul/families/network.h"
#include "longhaul/nn/forward_context.h"
#include "longhaul/ops/rms_norm.h"
#include "longhaul/tensor/parameter_set.h"

namespace longhaul::nn {

/// ops::rms_norm or ops::layer_norm with the parameters [H] of the norm.
class Norm {
 public:
  Norm(tensor::ParameterSet& parameters, const families::Norm& form);
  /// Maps x [T, H] to [T, H].
  at::Tensor forward(const at::Tensor& x, const ForwardContext& context) const;
  /// Returns x + delta, or x if delta is undefined, and the norm of this sum. An RMS norm
  /// does both in one operation.
  ops::ResidualNorm residual(const at::Tensor& x, const ForwardContext& context,
                             const at::Tensor& delta) const;

 private:
  tensor::ParameterPtr weight_;
  tensor::ParameterPtr bias_;  ///< the bias of a LayerNorm; null for an RMS norm
  double eps_;
  RmsForm form_;
};

}  // namespace longhaul::nn
