#include "longhaul/nn/linear.h"

#include "longhaul/base/error.h"
#include "longhaul/ops/embedding.h"
#include "longhaul/ops/layer_norm.h"
#include "longhaul/ops/linear.h"

namespace longhaul::nn {

Linear::Linear(ParameterSet& parameters, const std::string& name, Bias bias)
    : weight_(parameters.take(name + ".weight")) {
  if (bias == Bias::Yes) bias_ = parameters.take(name + ".bias");
}

at::Tensor Linear::forward(const ops::LinearInput& x,
                           const ForwardContext& context) const {
  // A further mode belongs here, as the compiler says; forward_all comes here with it.
  switch (context.products) {
    case ProductPrecision::Compute:
      return ops::linear(x, weight_, context.weight_gradients, bias_);
  }
  throw Error(ErrorKind::Internal, "bug", "a linear layer in no known precision");
}

std::vector<at::Tensor> Linear::forward_all(const std::vector<const Linear*>& layers,
                                            const ops::LinearInput& x,
                                            const ForwardContext& context) {
  if (context.fused && context.products == ProductPrecision::Compute) {
    std::vector<ops::Projection> projections;
    for (const Linear* l : layers) projections.push_back({l->weight_, l->bias_});
    return ops::joint_linear(x, projections, context.weight_gradients);
  }
  std::vector<at::Tensor> results;
  for (const Linear* l : layers) results.push_back(l->forward(x, context));
  return results;
}

OutLinear::OutLinear(ParameterSet& parameters, const std::string& name, Bias bias)
    : projection_(parameters, name) {
  if (bias == Bias::Yes) bias_ = parameters.take(name + ".bias");
}

at::Tensor OutLinear::forward(const ops::LinearInput& x,
                              const ForwardContext& context) const {
  const at::Tensor y = context.leave(projection_.forward(x, context));
  return bias_ ? ops::add_bias(y, bias_) : y;
}

Embedding::Embedding(ParameterSet& parameters, const std::string& name)
    : weight_(parameters.take(name + ".weight")) {}

at::Tensor Embedding::forward(const at::Tensor& ids,
                              const ForwardContext& context) const {
  return context.leave(partial(ids));
}

at::Tensor Embedding::partial(const at::Tensor& ids) const {
  return ops::embedding(ids, weight_);
}

LayerNorm::LayerNorm(ParameterSet& parameters, const std::string& name, double eps)
    : weight_(parameters.take(name + ".weight")),
      bias_(parameters.take(name + ".bias")),
      eps_(eps) {}

at::Tensor LayerNorm::forward(const at::Tensor& x) const {
  return ops::layer_norm(x, weight_, bias_, eps_);
}

RmsNorm::RmsNorm(ParameterSet& parameters, const std::string& name, double eps)
    : weight_(parameters.take(name + ".weight")), eps_(eps) {}

at::Tensor RmsNorm::forward(const at::Tensor& x, const ForwardContext& context) const {
  return ops::rms_norm(x, weight_, eps_, context.fused);
}

ops::ResidualNorm RmsNorm::residual(const at::Tensor& x, const ForwardContext& context,
                                    const at::Tensor& delta) const {
  return ops::residual_rms_norm(x, delta, weight_, eps_, context.fused);
}

}  // namespace longhaul::nn
