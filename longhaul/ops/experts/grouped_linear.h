#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

#include "longhaul/ops/linear/linear_input.h"
#include "longhaul/ops/linear/weight_gradients.h"

namespace longhaul::ops {

/// The weights of experts: weights[e][i] is expert e's projection number i, [n_i, K]. All
/// experts have projections of equal sizes.
using ExpertWeights = std::vector<std::vector<tensor::ParameterPtr>>;

/// Returns the products of rows [R, K] with the weights of their experts: one tensor [R,
/// n_i] for each projection. The rows of expert e are [offsets[e], offsets[e + 1]), where
/// `offsets` is int32 [E + 1] on the device of the rows; an expert may have none. The
/// backward computes the gradient of the rows from the weights that the parameters have
/// at that time, and puts (rows, dy) into the queue of weight gradients. For the queue
/// the rows are kept, or taken from `rows.again`, unless all weights are frozen.
///
/// If the weights of all experts lie at equal distances in one memory, as in a bucket,
/// one grouped product computes all experts, and the offsets stay on the device. The
/// plain form, which is the reference, is a loop over experts, for which the host reads
/// the offsets.
std::vector<at::Tensor> grouped_linear(const LinearInput& rows, const at::Tensor& offsets,
                                       const ExpertWeights& weights,
                                       const WeightGradientsPtr& gradients, bool fused);

/// Returns why the host has to read the offsets of the experts' products, for which it
/// waits for the device. Returns an empty text if the offsets stay on the device, or if
/// the device is a CPU. `name` is the result of device::name(), and `sizes` are the
/// numbers of rows and columns of the experts' matrices.
std::string describe_offset_waits(at::ScalarType type, at::Device device,
                                  const std::string& name, bool fused,
                                  const std::vector<int64_t>& sizes);

}  // namespace longhaul::ops
