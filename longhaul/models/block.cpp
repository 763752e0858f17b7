#include "longhaul/models/block.h"

#include <ATen/TensorOperators.h>

#include <utility>

#include "longhaul/nn/dropout.h"
#include "longhaul/ops/scaled.h"

namespace longhaul::models {
namespace {

std::optional<nn::Norm> make_norm(tensor::ParameterSet& parameters,
                                  const std::optional<families::Norm>& form) {
  return form ? std::optional<nn::Norm>(std::in_place, parameters, *form) : std::nullopt;
}

Core make_core(tensor::ParameterSet& parameters, const families::Core& form,
               int64_t number) {
  return families::by_kind(
      form,
      [&](const families::Attention& layer) -> Core {
        return nn::Attention(parameters, layer, number);
      },
      [&](const families::FeedForward& layer) -> Core {
        return nn::FeedForward(parameters, layer);
      },
      [&](const families::Experts& layer) -> Core {
        return nn::Experts(parameters, layer, number);
      });
}

/// Returns the place at which elements of the layer's result are dropped.
nn::DropoutSite dropout_site(const Core& core) {
  using nn::DropoutSite;
  return families::by_kind(
      core, [](const nn::Attention&) { return DropoutSite::AttentionOut; },
      [](const nn::FeedForward&) { return DropoutSite::FeedForward; },
      [](const nn::Experts&) { return DropoutSite::FeedForward; });
}

void prepare(Core& core, nn::RopeTables& tables) {
  families::by_kind(
      core, [&](nn::Attention& layer) { layer.prepare(tables); }, [](nn::FeedForward&) {},
      [](nn::Experts&) {});
}

/// Returns an empty cache for the layer. It has no tensors if the layer is no attention,
/// since other layers need nothing of earlier positions.
ops::KeptPositions make_cache(const Core& core, int64_t batch, int64_t capacity,
                              const at::TensorOptions& options) {
  return families::by_kind(
      core,
      [&](const nn::Attention& layer) {
        return layer.make_cache(batch, capacity, options);
      },
      [](const nn::FeedForward&) { return ops::KeptPositions(); },
      [](const nn::Experts&) { return ops::KeptPositions(); });
}

}  // namespace

Block::Block(tensor::ParameterSet& parameters, const families::Block& form, int64_t layer)
    : layer_(layer) {
  for (const families::Step& step : form) {
    Step made{{}, make_norm(parameters, step.of_stream)};
    for (const families::Branch& branch : step.branches) {
      made.branches.push_back(
          {make_norm(parameters, branch.before), make_norm(parameters, branch.after),
           make_core(parameters, branch.core, layer), branch.dropout, branch.scale});
    }
    steps_.push_back(std::move(made));
  }
}

at::Tensor Block::run(const Branch& branch, const at::Tensor& in,
                      const nn::ForwardContext& context) const {
  at::Tensor y = std::visit([&](const auto& layer) { return layer.forward(in, context); },
                            branch.core);
  if (branch.after) y = branch.after->forward(y, context);
  y = nn::dropout(y, branch.dropout, layer_, dropout_site(branch.core), context);
  return ops::scaled(y, branch.scale);
}

at::Tensor Block::forward(const at::Tensor& input,
                          const nn::ForwardContext& context) const {
  at::Tensor x = input;
  // `delta` is the result of the branch before. The norm of the next branch, if it has
  // one, adds `delta` to x in the same operation.
  at::Tensor delta;
  for (const Step& step : steps_) {
    at::Tensor normed;
    if (step.branches.size() == 1 && step.branches.front().before) {
      auto joined = step.branches.front().before->residual(x, context, delta);
      x = std::move(joined.sum);
      normed = std::move(joined.normed);
    } else if (delta.defined()) {
      x = x + delta;
    }
    at::Tensor sum = x;
    delta = at::Tensor();
    for (const Branch& branch : step.branches) {
      if (delta.defined()) sum = sum + delta;
      if (step.branches.size() > 1 && branch.before) {
        normed = branch.before->forward(x, context);
      }
      delta = run(branch, branch.before ? normed : x, context);
    }
    x = sum;
    if (!step.of_stream) continue;
    x = step.of_stream->forward(x + delta, context);
    delta = at::Tensor();
  }
  return delta.defined() ? x + delta : x;
}

void Block::prepare(nn::RopeTables& tables) {
  for (Step& step : steps_) {
    for (Branch& branch : step.branches) models::prepare(branch.core, tables);
  }
}

ops::KeptPositions Block::make_cache(int64_t batch, int64_t capacity,
                                     const at::TensorOptions& options) const {
  for (const Step& step : steps_) {
    for (const Branch& branch : step.branches) {
      auto cache = models::make_cache(branch.core, batch, capacity, options);
      if (!cache.empty()) return cache;
    }
  }
  return {};
}

}  // namespace longhaul::models
