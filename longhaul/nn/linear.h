#pragma once

#include "longhaul/families/network.h"
#include "longhaul/nn/forward_context.h"
#include "longhaul/tensor/parameter_set.h"

namespace longhaul::nn {

enum class Bias { No, Yes };

/// y = x W^T, or with a bias; W [out, in].
class Linear {
 public:
  /// Takes NAME.weight, and NAME.bias.
  Linear(ParameterSet& parameters, const std::string& name, Bias bias = Bias::No);
  Linear(ParameterSet& parameters, const families::Projection& form)
      : Linear(parameters, form.name, form.bias ? Bias::Yes : Bias::No) {}
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
  OutLinear(ParameterSet& parameters, const families::Projection& form);
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

}  // namespace longhaul::nn
