#include "longhaul/nn/loss_head.h"

namespace longhaul::nn {

at::Tensor loss_head(const at::Tensor& hidden, const ParameterPtr& weight, size_t term,
                     const ForwardContext& context) {
  ops::LossHeadOptions options;
  options.scale = context.losses->scales.at(term);
  options.z_loss = context.losses->z_loss;
  options.fused = context.fused;
  const SplitRegion* region = context.region;
  if (region != nullptr) {
    options.vocabulary_parts = region->ranks();
    options.combine = [region](at::Tensor& lse, at::Tensor& picked) {
      region->combine_loss(lse, picked);
    };
  }
  // The head forms its gradients at once: nothing of its input is needed again.
  const ops::LossHeadResult result =
      ops::loss_head(region == nullptr ? hidden : region->enter(hidden).x, weight,
                     context.batch.targets.at(term), options);
  context.losses->add(term, result.cross_entropy_sum);
  return result.loss;
}

}  // namespace longhaul::nn
