#include "longhaul/nn/loss_head.h"

namespace longhaul::nn {

ops::LossHeadResult loss_head(const at::Tensor& hidden, const ParameterPtr& weight,
                              const at::Tensor& targets, const ForwardContext& context,
                              const ops::LossHeadOptions& options) {
  const SplitRegion* region = context.region;
  if (region == nullptr) return ops::loss_head(hidden, weight, targets, options);
  ops::LossHeadOptions split = options;
  split.vocabulary_parts = region->ranks();
  split.combine = [region](at::Tensor& lse, at::Tensor& picked) {
    region->combine_loss(lse, picked);
  };
  // The head forms its gradients at once: nothing of its input is needed again.
  return ops::loss_head(region->enter(hidden).x, weight, targets, split);
}

}  // namespace longhaul::nn
