#pragma once

#include <optional>
#include <string>
#include <vector>

#include "longhaul/families/network.h"
#include "longhaul/nn/forward_context.h"
#include "longhaul/nn/low_rank.h"
#include "longhaul/tensor/parameter_set.h"

namespace longhaul::nn {

enum class Bias { No, Yes };

/// Computes y = x W^T + b, or without a bias, and the low-rank part if the form has one;
/// W is [out, in].
class Linear {
 public:
  /// Takes the parameter NAME.weight, and NAME.bias with a bias.
  Linear(tensor::ParameterSet& parameters, const std::string& name, Bias bias = Bias::No);
  Linear(tensor::ParameterSet& parameters, const families::Linear& form)
      : Linear(parameters, form, form.bias ? Bias::Yes : Bias::No) {}
  /// Takes the parameters of the form, with a bias or without one.
  Linear(tensor::ParameterSet& parameters, const families::Linear& form, Bias bias);
  /// Maps [T, in] to [T, out].
  at::Tensor forward(const ops::LinearInput& x, const ForwardContext& context) const;
  const tensor::ParameterPtr& weight() const { return weight_; }

  /// Returns forward() of each layer, in their order. Layers whose weights lie
  /// side by side are one product (ops::joint_linear), unless context.fused is
  /// false.
  static std::vector<at::Tensor> forward_all(const std::vector<const Linear*>& layers,
                                             const ops::LinearInput& x,
                                             const ForwardContext& context);

 private:
  bool has_magnitude() const { return low_rank_ && low_rank_->has_magnitude(); }
  /// Adds to `y` = x W^T, which has the bias unless it comes `behind`, what is lacking.
  at::Tensor finish(const at::Tensor& y, bool behind, const ops::LinearInput& x,
                    const ForwardContext& context) const;

  tensor::ParameterPtr weight_;
  tensor::ParameterPtr bias_;  ///< null: no bias
  std::optional<LowRank> low_rank_;
};

/// Computes leave(x W^T) + b: the last projection of a SplitRegion, whose leave() sums
/// over the ranks. The bias is added once, to the sum.
class OutLinear {
 public:
  OutLinear(tensor::ParameterSet& parameters, const families::Linear& form);
  /// Maps [T, in] to [T, out], or to this rank's tokens of it. Collective over tp.
  at::Tensor forward(const ops::LinearInput& x, const ForwardContext& context) const;
  /// Returns x W^T, this rank's addend of the sum.
  at::Tensor partial(const ops::LinearInput& x, const ForwardContext& context) const {
    return projection_.forward(x, context);
  }

 private:
  Linear projection_;
  tensor::ParameterPtr bias_;  ///< null: no bias
};

/// Looks up rows of a [V, H] table, whose vocabulary may be split.
class Embedding {
 public:
  /// Takes the parameter NAME.weight.
  Embedding(tensor::ParameterSet& parameters, const std::string& name);
  /// Maps ids [T] to [T, H], or to this rank's tokens under sequence parallelism.
  /// Collective over tp.
  at::Tensor forward(const at::Tensor& ids, const ForwardContext& context) const;
  /// Returns the rows before the ranks of a split vocabulary are summed: zeros for ids
  /// that other ranks have.
  at::Tensor partial(const at::Tensor& ids) const;
  const tensor::ParameterPtr& weight() const { return weight_; }

 private:
  tensor::ParameterPtr weight_;
};

}  // namespace longhaul::nn
