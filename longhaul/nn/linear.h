#pragma once

#include "longhaul/nn/forward_context.h"
#include "longhaul/ops/rms_norm.h"
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

  /// forward() of each, in their order: one product where the weights' memory allows it
  /// (ops::joint_linear), unless the context asks for the plain forms.
  static std::vector<at::Tensor> forward_all(const std::vector<const Linear*>& layers,
                                             const ops::LinearInput& x,
                                             const ForwardContext& context);

 private:
  ParameterPtr weight_;
  ParameterPtr bias_;  ///< or null
};

/// leave(x W^T) + b: the projection at the end of a region with split features
/// (SplitRegion). The bias is added once, where features are whole.
class OutLinear {
 public:
  /// Takes NAME.weight, and NAME.bias.
  OutLinear(ParameterSet& parameters, const std::string& name, Bias bias = Bias::No);
  /// [T, in] -> [T, out] of this rank's part of T. Collective there.
  at::Tensor forward(const ops::LinearInput& x, const ForwardContext& context) const;

 private:
  Linear projection_;
  ParameterPtr bias_;  ///< or null
};

/// Rows of a [V, H] table, whose vocabulary may be split.
class Embedding {
 public:
  /// Takes NAME.weight.
  Embedding(ParameterSet& parameters, const std::string& name);
  /// ids [T]; result [T, H], or this rank's part of T (SplitRegion::leave).
  at::Tensor forward(const at::Tensor& ids, const ForwardContext& context) const;
  /// Before the ranks of a split vocabulary are summed: zeros for what others have.
  at::Tensor partial(const at::Tensor& ids) const;
  const ParameterPtr& weight() const { return weight_; }

 private:
  ParameterPtr weight_;
};

/// ops::layer_norm with its weight and bias [H].
class LayerNorm {
 public:
  /// Takes NAME.weight and NAME.bias.
  LayerNorm(ParameterSet& parameters, const std::string& name, double eps);
  /// x [T, H] -> [T, H].
  at::Tensor forward(const at::Tensor& x) const;

 private:
  ParameterPtr weight_, bias_;
  double eps_;
};

/// ops::rms_norm with its weight [H].
class RmsNorm {
 public:
  /// Takes NAME.weight.
  RmsNorm(ParameterSet& parameters, const std::string& name, double eps);
  /// x [T, H] -> [T, H].
  at::Tensor forward(const at::Tensor& x, const ForwardContext& context) const;
  /// ops::residual_rms_norm of x + delta, or of x alone.
  ops::ResidualNorm residual(const at::Tensor& x, const ForwardContext& context,
                             const at::Tensor& delta = {}) const;
  const ParameterPtr& weight() const { return weight_; }

 private:
  ParameterPtr weight_;
  double eps_;
};

}  // namespace longhaul::nn
