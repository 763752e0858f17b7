#include "longhaul/nn/loss_head.h"

#include <ATen/ops/nonzero.h>

namespace longhaul::nn {
namespace {

ops::LossHeadOptions head_options(size_t term, const ForwardContext& context) {
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
  return options;
}

at::Tensor counted(const ops::LossHeadResult& result, size_t term,
                   const ForwardContext& context) {
  context.losses->add(term, result.cross_entropy_sum);
  return result.loss;
}

}  // namespace

at::Tensor loss_head(const at::Tensor& hidden, const tensor::ParameterPtr& weight,
                     const ForwardContext& context, double logits_divisor,
                     double logits_cap) {
  // The head forms its gradients at once, so that the backward does not need its input.
  const at::Tensor rows =
      context.region == nullptr ? hidden : context.region->enter(hidden).x;
  ops::LossHeadOptions options = head_options(0, context);
  options.logits_divisor = logits_divisor;
  options.logits_cap = logits_cap;
  return counted(ops::loss_head(rows, weight, context.batch.targets.at(0), options), 0,
                 context);
}

at::Tensor loss_head_inside(const at::Tensor& rows, const at::Tensor& targets,
                            const tensor::ParameterPtr& weight,
                            const tensor::ParameterPtr& bias, size_t term,
                            const ForwardContext& context) {
  ops::LossHeadOptions options = head_options(term, context);
  options.bias = bias;
  return counted(ops::loss_head(rows, weight, targets, options), term, context);
}

at::Tensor rows_with_target(const Batch& batch) {
  if (batch.target_rows.defined()) return batch.target_rows;
  return at::nonzero(batch.targets.at(0).ge(0)).squeeze(1);
}

at::Tensor loss_inside(const at::Tensor& logits, size_t term,
                       const ForwardContext& context) {
  ops::LossHeadOptions options;
  const int64_t copies = context.region == nullptr ? 1 : context.region->ranks();
  options.scale = context.losses->scales.at(term) / static_cast<double>(copies);
  return counted(ops::cross_entropy(logits, context.batch.targets.at(term), options),
                 term, context);
}

}  // namespace longhaul::nn
