#pragma once

#include <ATen/core/Tensor.h>

#include "longhaul/ops/weight_gradients.h"

namespace longhaul::ops {

/// A tensor that a backward will need and that is not kept until then: it is gathered or
/// computed again. Every holder takes it once, in its backward; the implementation may
/// keep it between the first take and the last.
class SavedInput {
 public:
  virtual ~SavedInput() = default;
  virtual at::Tensor take() = 0;
};

/// What a linear layer is given: x [T, K], and how to have it again in the backward;
/// null: x itself is kept. Each linear layer that is given `again` takes it once.
struct LinearInput {
  at::Tensor x;
  std::shared_ptr<SavedInput> again;
};

/// y = x W^T. x [T, K] in the compute dtype, W [N, K], y [T, N].
/// The backward computes dx = dy W from the handle's weight at that time, and enqueues
/// (x, dy) for dW. Without grad mode `gradients` is not touched and may be null.
at::Tensor linear(const at::Tensor& x, const ParameterPtr& weight,
                  const WeightGradientsPtr& gradients);

}  // namespace longhaul::ops
