#pragma once

#include <optional>

#include "longhaul/families/network.h"
#include "longhaul/nn/forward_context.h"
#include "longhaul/nn/linear.h"

namespace longhaul::nn {

/// Computes down(act(gate x) * up x), or down(act(up x)) without a gate. Inside a
/// SplitRegion gate and up have a part of the inner features.
class FeedForward {
 public:
  FeedForward(tensor::ParameterSet& parameters, const families::FeedForward& form);
  /// Maps x [T, H] to [T, H], or this rank's tokens of x to the same tokens under
  /// sequence parallelism. Collective over tp.
  at::Tensor forward(const at::Tensor& x, const ForwardContext& context) const;
  /// Returns this rank's addend of the sum over tp ranks, without a bias of the last
  /// projection.
  at::Tensor partial(const ops::LinearInput& in, const ForwardContext& context) const;

 private:
  ops::LinearInput inner(const ops::LinearInput& in, const ForwardContext& context) const;
  std::vector<at::Tensor> inputs(const ops::LinearInput& x,
                                 const ForwardContext& context) const;

  std::optional<Linear> gate_;
  Linear up_;
  OutLinear down_;
  Activation activation_;
};

}  // namespace longhaul::nn
