#pragma once

#include "longhaul/nn/forward_context.h"
#include "longhaul/tensor/parameter_set.h"

namespace longhaul::nn {

enum class Bias { No, Yes };

/// y = x W^T, or with a bias; W [out, in].
class Linear {
 public:
  /// Takes NAME.weight, and NAME.bias.
  Linear(ParameterSet& parameters, const std::string& name, Bias bias = Bias::No);
  /// [T, in] -> [T, out].
  at::Tensor forward(const ops::LinearInput& x, const ForwardContext& context) const;
  const ParameterPtr& weight() const { return weight_; }

 private:
  ParameterPtr weight_;
  ParameterPtr bias_;  ///< or null
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

/// ops::rms_norm with its weight [H], over the last dim of x [.., H].
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
