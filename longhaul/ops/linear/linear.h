#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "longhaul/ops/linear/linear_input.h"
#include "longhaul/ops/linear/weight_gradients.h"

namespace longhaul::ops {

/// y = x W^T + b. x [T, K] in the compute dtype, W [N, K], b [N] or null, y [T, N].
/// The backward computes dx = dy W from the handle's weight at that time, and enqueues
/// (x, dy) for dW; x is kept for that, or taken from `input.again`. The bias takes its
/// gradient at once, summed over T in fp32. Without grad mode `gradients` is not touched
/// and may be null.
at::Tensor linear(const LinearInput& input, const ParameterPtr& weight,
                  const WeightGradientsPtr& gradients,
                  const ParameterPtr& bias = nullptr);

/// A weight [n, K] and its bias [n], or null.
struct Projection {
  ParameterPtr weight;
  ParameterPtr bias;
};

/// linear() of one input with each of these, in their order; all have a bias, or none.
/// Weights that lie side by side (joined_rows), as their gradients then do, are one
/// product, forward and backward. Its results y_i [T, n_i] are slices of one matrix,
/// which nothing keeps: they may be written. Their gradients are taken without a copy
/// where they are slices of one matrix in the same order (ColumnLayout).
std::vector<at::Tensor> joint_linear(const LinearInput& input,
                                     const std::vector<Projection>& projections,
                                     const WeightGradientsPtr& gradients);

/// y + b, y [T, N], b [N]. The bias takes its gradient in the backward, summed over T in
/// fp32.
at::Tensor add_bias(const at::Tensor& y, const ParameterPtr& bias);

}  // namespace longhaul::ops
