#pragma once

#include <vector>

#include "longhaul/families/network.h"
#include "longhaul/nn/forward_context.h"
#include "longhaul/ops/experts/grouped_linear.h"
#include "longhaul/tensor/parameter_set.h"

namespace longhaul::nn {

/// The projections of experts that take the same input, such as gate and up, with their
/// low-rank parts if the layers have any (families::LowRank).
class ExpertProjections {
 public:
  /// Takes the parameters of layers[e][i], expert e's projection number i: NAME.weight,
  /// and the matrices of low-rank parts. All projections of an expert have one A.
  ExpertProjections(tensor::ParameterSet& parameters,
                    const std::vector<std::vector<const families::Linear*>>& layers);
  /// Maps the rows [R, K] of this rank's experts to [R, n_i], one tensor for each i. See
  /// ops::grouped_linear for `offsets`. Inside a SplitRegion the results are this rank's
  /// features, or its addends of the sum.
  std::vector<at::Tensor> forward(const ops::LinearInput& rows, const at::Tensor& offsets,
                                  const ForwardContext& context) const;

 private:
  ops::ExpertWeights weights_;
  ops::ExpertWeights a_, b_;  ///< empty: there are no low-rank parts
  double scale_ = 1.0;
};

}  // namespace longhaul::nn
