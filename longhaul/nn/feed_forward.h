#pragma once

#include "longhaul/nn/forward_context.h"
#include "longhaul/nn/linear.h"

namespace longhaul::nn {

/// down(silu(gate x) * up x). Names: gate_proj, up_proj, down_proj. Inside a SplitRegion
/// gate and up have a part of the inner features.
class FeedForward {
 public:
  FeedForward(const std::string& name, int64_t hidden, int64_t inner, double stddev);
  /// x [T, H] -> [T, H], both of this rank's part of T (SplitRegion). Collective there.
  at::Tensor forward(const at::Tensor& x, const ForwardContext& context) const;
  std::vector<ParameterPtr> parameters() const;

 private:
  Linear gate_, up_, down_;
};

}  // namespace longhaul::nn
