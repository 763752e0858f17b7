#include "longhaul/models/block.h"

#include <ATen/TensorOperators.h>

#include <utility>

#include "longhaul/base/error.h"
#include "longhaul/nn/dropout.h"
#include "longhaul/ops/scaled.h"

namespace longhaul::models {
namespace {

std::optional<nn::Norm> make_norm(tensor::ParameterSet& parameters,
                                  const std::optional<families::Norm>& form) {
  return form ? std::optional<nn::Norm>(std::in_place, parameters, *form) : std::nullopt;
}

using Core = std::variant<nn::Attention, nn::FeedForward, nn::Experts>;

Core make_core(tensor::ParameterSet& parameters, const families::Core& form,
               int64_t layer) {
  if (const auto* attention = std::get_if<families::Attention>(&form)) {
    return nn::Attention(parameters, *attention, layer);
  }
  if (const auto* experts = std::get_if<families::Experts>(&form)) {
    return nn::Experts(parameters, *experts, layer);
  }
  return nn::FeedForward(parameters, std::get<families::FeedForward>(form));
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
  const bool attends = std::holds_alternative<nn::Attention>(branch.core);
  at::Tensor y = std::visit([&](const auto& core) { return core.forward(in, context); },
                            branch.core);
  if (branch.after) y = branch.after->forward(y, context);
  y = nn::dropout(y, branch.dropout, layer_,
                  attends ? nn::DropoutSite::AttentionOut : nn::DropoutSite::FeedForward,
                  context);
  return ops::scaled(y, branch.scale);
}

at::Tensor Block::forward(const at::Tensor& input,
                          const nn::ForwardContext& context) const {
  at::Tensor x = input;
  // The result of the last branch. The norm that follows adds it to x, where there is
  // one.
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
    for (Branch& branch : step.branches) {
      if (auto* attention = std::get_if<nn::Attention>(&branch.core)) {
        attention->prepare(tables);
      }
    }
  }
}

nn::KvCache::Layer Block::make_cache(int64_t batch, int64_t capacity,
                                     const at::TensorOptions& options) const {
  for (const Step& step : steps_) {
    for (const Branch& branch : step.branches) {
      if (const auto* attention = std::get_if<nn::Attention>(&branch.core)) {
        return attention->make_cache(batch, capacity, options);
      }
    }
  }
  return {};
}

}  // namespace longhaul::models
