#pragma once

#include "longhaul/families/network.h"
#include "longhaul/nn/forward_context.h"
#include "longhaul/tensor/parameter_set.h"

namespace longhaul::nn {

/// The low-rank part of a linear layer (families::LowRank).
class LowRank {
 public:
  /// Takes the parameters NAME.lora_A.weight, NAME.lora_B.weight and, with a magnitude,
  /// NAME.lora_magnitude_vector. `form.adapter` is there.
  LowRank(tensor::ParameterSet& parameters, const families::Linear& form);

  /// Returns whether the part scales the rows of the weight, so that a bias has to be
  /// added behind it.
  bool has_magnitude() const { return magnitude_ != nullptr; }
  /// Returns the layer's result without a bias: `y` = x W^T with the low-rank part.
  /// Inside a SplitRegion it is this rank's features, or its addend of the sum.
  /// Collective over tp if the part has a magnitude.
  at::Tensor forward(const at::Tensor& y, const ops::LinearInput& x,
                     const tensor::ParameterPtr& weight,
                     const ForwardContext& context) const;

 private:
  ops::LinearInput dropped(const ops::LinearInput& x,
                           const ForwardContext& context) const;
  at::Tensor lengths(const tensor::ParameterPtr& weight,
                     const ForwardContext& context) const;

  families::LowRank form_;
  tensor::ParameterPtr a_, b_;
  tensor::ParameterPtr magnitude_;  ///< null: none
};

}  // namespace longhaul::nn
