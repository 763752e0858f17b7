#include "longhaul/nn/expert_projections.h"

#include <ATen/ops/add.h>

// Shapes: R rows, K features, r the rank.

namespace longhaul::nn {
namespace {

/// Returns those of `weights` that this rank has.
ops::ExpertWeights weights_here(const ops::ExpertWeights& weights) {
  ops::ExpertWeights here;
  for (const auto& expert : weights) {
    if (expert.front()->slice().extent[0] > 0) here.push_back(expert);
  }
  return here;
}

}  // namespace

ExpertProjections::ExpertProjections(
    tensor::ParameterSet& parameters,
    const std::vector<std::vector<const families::Linear*>>& layers) {
  for (const auto& expert : layers) {
    auto& weights = weights_.emplace_back();
    for (const families::Linear* layer : expert) {
      weights.push_back(parameters.take(layer->name + ".weight"));
    }
    if (!expert.front()->adapter) continue;
    scale_ = expert.front()->adapter->scale;
    a_.push_back({parameters.take(families::lora_a(*expert.front()))});
    auto& b = b_.emplace_back();
    for (const families::Linear* layer : expert) {
      b.push_back(parameters.take(families::lora_b(*layer)));
    }
  }
}

std::vector<at::Tensor> ExpertProjections::forward(const ops::LinearInput& rows,
                                                   const at::Tensor& offsets,
                                                   const ForwardContext& context) const {
  const auto product = [&](const ops::LinearInput& x, const ops::ExpertWeights& weights) {
    return ops::grouped_linear(x, offsets, weights_here(weights),
                               context.weight_gradients, context.fused);
  };
  std::vector<at::Tensor> y = product(rows, weights_);
  if (a_.empty()) return y;
  const at::Tensor inner = product(rows, a_).front();  // [R, r]
  const std::vector<at::Tensor> parts = product(inner, b_);
  for (size_t i = 0; i < y.size(); ++i) y[i] = at::add(y[i], parts[i], scale_);
  return y;
}

}  // namespace longhaul::nn
