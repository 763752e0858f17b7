#include "longhaul/nn/loss_head.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/List.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/nonzero.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>

#include <utility>

#include "longhaul/nn/pair_loss.h"
#include "longhaul/ops/narrow/loss.h"

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

/// Adds up fp32 [T] by the side that each token belongs to: fp64 [sides]. Every sum adds
/// its tokens in their order, so its bits do not depend on other rows.
/// On a narrow device the sums are fp32.
at::Tensor sum_by_side(const at::Tensor& values, const Batch& batch) {
  const int64_t sides = batch.reference.numel();
  if (ops::narrow::is_on_narrow_device(values)) {
    return ops::narrow::sum_by_group(values, batch.sides, sides);
  }
  at::Tensor sums = at::zeros({sides + 1}, values.options().dtype(at::kDouble));
  const c10::List<std::optional<at::Tensor>> index({batch.sides});
  sums.index_put_(index, values.to(at::kDouble), /*accumulate=*/true);
  return sums.narrow(0, 0, sides);
}

/// Returns the sum of all values: an fp64 scalar, or on a narrow device addends of it.
at::Tensor sum_of(const at::Tensor& values) {
  return ops::narrow::is_on_narrow_device(values)
             ? ops::narrow::block_sums(values.to(at::kFloat))
             : values.sum(at::kDouble);
}

/// Adds what a rank has found of its pairs to the terms of the loss. `lengths` are those
/// of PairSums.
void count_pairs(const PairLoss& pairs, const at::Tensor& lengths,
                 const ForwardContext& context) {
  if (!context.pairs.counts) return;
  Losses& losses = *context.losses;
  const auto sum = [&](const at::Tensor& values) {
    if (!ops::narrow::is_on_narrow_device(values)) return sum_of(values);
    // Pairs without tokens fill up a batch there (session::batch_of).
    return sum_of(values * lengths.sum(1).gt(0.0));
  };
  losses.add(0, sum(pairs.loss));
  const auto side = [](const at::Tensor& values, int64_t i) {
    return values.select(1, i);
  };
  const at::Tensor right = side(pairs.rewards, 0).gt(side(pairs.rewards, 1));
  size_t figure = context.pairs.figures;
  for (const at::Tensor& values : {side(pairs.rewards, 0), side(pairs.rewards, 1), right,
                                   side(pairs.log_probs, 0), side(pairs.log_probs, 1)}) {
    losses.add(figure++, sum(values));
  }
}

/// Computes the loss of the pairs of a batch for rows [T, H], which every tp rank has
/// whole.
at::Tensor loss_of_pairs(const at::Tensor& rows, const tensor::ParameterPtr& weight,
                         const ForwardContext& context, ops::LossHeadOptions options) {
  const Batch& batch = context.batch;
  const PairContext& pairs = context.pairs;
  const at::Tensor completion = batch.targets.at(0).ge(0).to(at::kFloat);
  at::Tensor targets = batch.targets.at(0), chosen;  // chosen: the tokens of term 1
  if (batch.targets.size() > 1) {
    chosen = batch.targets[1].ge(0).to(at::kFloat);
    targets = at::where(batch.targets[1].ge(0), batch.targets[1], targets);
  }
  const at::Tensor log_probs =
      ops::token_log_probs(rows.detach(), weight, targets, options);
  at::Tensor sums = at::stack(
      {sum_by_side(log_probs * completion, batch), sum_by_side(completion, batch)});
  if (pairs.sum_positions) pairs.sum_positions(sums);
  const PairSums of_pairs = {sums[0].view({-1, 2}), sums[1].view({-1, 2}),
                             batch.reference};
  const PairLoss found = pair_loss(of_pairs, pairs.settings);
  count_pairs(found, of_pairs.lengths, context);
  if (pairs.sums != nullptr) pairs.sums->push_back(of_pairs.log_probs);
  if (chosen.defined()) {
    context.losses->add(1, -sum_of(log_probs * chosen));
  }
  if (!at::GradMode::is_enabled()) return at::zeros({}, log_probs.options());
  const at::Tensor by_side =
      at::cat({found.slopes.view({-1}), at::zeros({1}, found.slopes.options())});
  const std::vector<double>& scales = context.losses->scales;
  options.row_weights =
      by_side.index_select(0, batch.sides).mul_(-scales.at(0)).to(at::kFloat) *
      completion;
  if (chosen.defined()) options.row_weights.add_(chosen * scales.at(1));
  options.scale = 1.0;
  return ops::loss_head(rows, weight, targets, options).loss;
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
  if (context.batch.sides.defined()) {
    return loss_of_pairs(rows, weight, context, std::move(options));
  }
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
  const at::Tensor& targets = batch.targets.at(0);
  if (!ops::narrow::is_on_narrow_device(targets)) {
    return at::nonzero(targets.ge(0)).squeeze(1);
  }
  return at::nonzero(targets.cpu().ge(0)).squeeze(1).to(at::kInt).to(targets.device());
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
