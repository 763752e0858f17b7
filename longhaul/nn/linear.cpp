#include "longhaul/nn/linear.h"

#include <algorithm>

#include "longhaul/ops/embedding.h"
#include "longhaul/ops/linear/linear.h"

namespace longhaul::nn {

Linear::Linear(tensor::ParameterSet& parameters, const std::string& name, Bias bias)
    : weight_(parameters.take(name + ".weight")) {
  if (bias == Bias::Yes) bias_ = parameters.take(name + ".bias");
}

Linear::Linear(tensor::ParameterSet& parameters, const families::Linear& form, Bias bias)
    : Linear(parameters, form.name, bias) {
  if (form.adapter) low_rank_.emplace(parameters, form);
}

at::Tensor Linear::finish(const at::Tensor& y, bool behind, const ops::LinearInput& x,
                          const ForwardContext& context) const {
  const at::Tensor whole = low_rank_ ? low_rank_->forward(y, x, weight_, context) : y;
  return behind && bias_ ? ops::add_bias(whole, bias_) : whole;
}

at::Tensor Linear::forward(const ops::LinearInput& x,
                           const ForwardContext& context) const {
  const bool behind = has_magnitude();
  return finish(
      ops::linear(x, weight_, context.weight_gradients, behind ? nullptr : bias_), behind,
      x, context);
}

std::vector<at::Tensor> Linear::forward_all(const std::vector<const Linear*>& layers,
                                            const ops::LinearInput& x,
                                            const ForwardContext& context) {
  if (context.fused) {
    const bool behind =
        std::ranges::any_of(layers, [](const Linear* l) { return l->has_magnitude(); });
    std::vector<ops::Projection> projections;
    for (const Linear* l : layers) {
      projections.push_back({l->weight_, behind ? nullptr : l->bias_});
    }
    std::vector<at::Tensor> y =
        ops::joint_linear(x, projections, context.weight_gradients);
    for (size_t i = 0; i < layers.size(); ++i) {
      y[i] = layers[i]->finish(y[i], behind, x, context);
    }
    return y;
  }
  std::vector<at::Tensor> results;
  for (const Linear* l : layers) results.push_back(l->forward(x, context));
  return results;
}

OutLinear::OutLinear(tensor::ParameterSet& parameters, const families::Linear& form)
    : projection_(parameters, form, Bias::No) {
  if (form.bias) bias_ = parameters.take(form.name + ".bias");
}

at::Tensor OutLinear::forward(const ops::LinearInput& x,
                              const ForwardContext& context) const {
  const at::Tensor y = context.leave(projection_.forward(x, context));
  return bias_ ? ops::add_bias(y, bias_) : y;
}

Embedding::Embedding(tensor::ParameterSet& parameters, const std::string& name)
    : weight_(parameters.take(name + ".weight")) {}

at::Tensor Embedding::forward(const at::Tensor& ids,
                              const ForwardContext& context) const {
  return context.leave(partial(ids));
}

at::Tensor Embedding::partial(const at::Tensor& ids) const {
  return ops::embedding(ids, weight_);
}

}  // namespace longhaul::nn
