#include "longhaul/nn/auxiliary_loss.h"

#include <ATen/TensorOperators.h>

#include "longhaul/ops/attached_loss.h"
#include "longhaul/tensor/device_limits.h"

namespace longhaul::nn {

at::Tensor with_auxiliary_loss(const at::Tensor& x, const at::Tensor& sum, size_t term,
                               const ForwardContext& context) {
  if (context.losses == nullptr) return x;
  // Ranks of a tp group may hold the same positions: each adds an equal share of their
  // sum.
  const SplitRegion* region = context.region;
  const int64_t copies = region == nullptr ? 1 : region->ranks() / region->token_parts();
  const bool wide = tensor::limits_of(sum.device()).wide_types;
  context.losses->add(term, sum.detach().to(wide ? at::kDouble : at::kFloat) /
                                static_cast<double>(copies));
  return ops::attach_loss(x, sum, context.losses->scales.at(term));
}

}  // namespace longhaul::nn
