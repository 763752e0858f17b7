#pragma once

#include "longhaul/nn/forward_context.h"
#include "longhaul/nn/linear.h"

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

}  // namespace longhaul::nn
