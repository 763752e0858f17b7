#pragma once

#include "longhaul/nn/forward_context.h"
#include "longhaul/tensor/parameter_set.h"

namespace longhaul::nn {

/// y = x W^T, W [out, in].
class Linear {
 public:
  /// Takes NAME.weight.
  Linear(ParameterSet& parameters, const std::string& name);
  /// [T, in] -> [T, out].
  at::Tensor forward(const ops::LinearInput& x, const ForwardContext& context) const;
  const ParameterPtr& weight() const { return weight_; }

 private:
  ParameterPtr weight_;
};

/// Rows of a [V, H] table, whose vocabulary may be split.
class Embedding {
 public:
  /// Takes NAME.weight.
  Embedding(ParameterSet& parameters, const std::string& name);
  /// ids [T]; result [T, H], or this rank's part of T (SplitRegion::leave).
  at::Tensor forward(const at::Tensor& ids, const ForwardContext& context) const;
  const ParameterPtr& weight() const { return weight_; }

 private:
  ParameterPtr weight_;
};

/// ops::rms_norm with its weight [H].
class RmsNorm {
 public:
  /// Takes NAME.weight.
  RmsNorm(ParameterSet& parameters, const std::string& name, double eps);
  at::Tensor forward(const at::Tensor& x, const ForwardContext& context) const;
  const ParameterPtr& weight() const { return weight_; }

 private:
  ParameterPtr weight_;
  double eps_;
};

}  // namespace longhaul::nn
