#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "longhaul/ops/linear/linear_input.h"
#include "longhaul/ops/linear/weight_gradients.h"

namespace longhaul::ops {

/// Returns y = x W^T + b: x is [T, K] in the compute dtype, W [N, K], b [N] or null, and
/// y [T, N]. The backward computes dx = dy W from the weight that the parameter has at
/// that time, and puts (x, dy) into the queue of weight gradients. For the queue x is
/// kept, or taken from `input.again`, unless the weight is frozen. With `input.beside`
/// the queue gets (x, dy) when the sum of dx over ranks is under way. The gradient of the
/// bias is added at once, summed over T in fp32. Without grad mode `gradients` is not
/// used and may be null.
at::Tensor linear(const LinearInput& input, const tensor::ParameterPtr& weight,
                  const WeightGradientsPtr& gradients,
                  const tensor::ParameterPtr& bias = nullptr);

/// A weight [n, K] and its bias [n]; a null bias means no bias.
struct Projection {
  tensor::ParameterPtr weight;
  tensor::ParameterPtr bias;
};

/// Returns linear() of one input with each projection, in their order; all have a bias,
/// or none. If weights lie side by side (joined_rows), and their gradients do too, one
/// product computes them in the forward and in the backward. The results y_i [T, n_i] are
/// then slices of one matrix that nothing keeps, so they may be written. Their gradients
/// are taken without a copy if the gradients are slices of one matrix in the same order
/// (ColumnLayout).
std::vector<at::Tensor> joint_linear(const LinearInput& input,
                                     const std::vector<Projection>& projections,
                                     const WeightGradientsPtr& gradients);

/// Returns y + b for y [T, N] and b [N]. The backward adds the gradient of the bias,
/// summed over T in fp32, to the accumulator of the bias.
at::Tensor add_bias(const at::Tensor& y, const tensor::ParameterPtr& bias);

}  // namespace longhaul::ops
