#pragma once

#include "longhaul/nn/forward_context.h"
#include "longhaul/nn/linear.h"

namespace longhaul::nn {

/// down(silu(gate x) * up x). Names: gate_proj, up_proj, down_proj.
class FeedForward {
 public:
  FeedForward(const std::string& name, int64_t hidden, int64_t inner, double stddev);
  /// x [T, H] -> [T, H].
  at::Tensor forward(const at::Tensor& x, const ForwardContext& context) const;
  std::vector<ParameterPtr> parameters() const;

 private:
  Linear gate_, up_, down_;
};

}  // namespace longhaul::nn
