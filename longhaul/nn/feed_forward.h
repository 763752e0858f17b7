#pragma once

#include "longhaul/nn/forward_context.h"
#include "longhaul/nn/linear.h"
#include "longhaul/ops/gelu.h"

namespace longhaul::nn {

/// down(silu(gate x) * up x). Inside a SplitRegion
/// gate and up have a part of the inner features.
class FeedForward {
 public:
  /// Takes the weights of NAME.gate_proj, up_proj and down_proj.
  FeedForward(ParameterSet& parameters, const std::string& name);
  /// x [T, H] -> [T, H], both of this rank's part of T (SplitRegion). Collective there.
  at::Tensor forward(const at::Tensor& x, const ForwardContext& context) const;

 private:
  Linear gate_, up_, down_;
};

using ops::Gelu;

/// down(gelu(up x)), both with a bias. Inside a SplitRegion up has a part of the inner
/// features.
class GeluFeedForward {
 public:
  /// Takes the weights and biases of NAME.up_proj and down_proj.
  GeluFeedForward(ParameterSet& parameters, const std::string& name, Gelu form);
  /// x [T, H] -> [T, H], both of this rank's part of T (SplitRegion). Collective there.
  at::Tensor forward(const at::Tensor& x, const ForwardContext& context) const;

 private:
  Linear up_;
  OutLinear down_;
  Gelu form_;
};

}  // namespace longhaul::nn
