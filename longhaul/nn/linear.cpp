#include "longhaul/nn/linear.h"

#include "longhaul/ops/embedding.h"
#include "longhaul/ops/linear.h"
#include "longhaul/ops/rms_norm.h"

namespace longhaul::nn {

Linear::Linear(ParameterSet& parameters, const std::string& name, Bias bias)
    : weight_(parameters.take(name + ".weight")) {
  if (bias == Bias::Yes) bias_ = parameters.take(name + ".bias");
}

at::Tensor Linear::forward(const ops::LinearInput& x,
                           const ForwardContext& context) const {
  return ops::linear(x, weight_, context.weight_gradients, bias_);
}

Embedding::Embedding(ParameterSet& parameters, const std::string& name)
    : weight_(parameters.take(name + ".weight")) {}

at::Tensor Embedding::forward(const at::Tensor& ids,
                              const ForwardContext& context) const {
  return context.leave(ops::embedding(ids, weight_));
}

RmsNorm::RmsNorm(ParameterSet& parameters, const std::string& name, double eps)
    : weight_(parameters.take(name + ".weight")), eps_(eps) {}

at::Tensor RmsNorm::forward(const at::Tensor& x, const ForwardContext& context) const {
  if (x.dim() == 2) return ops::rms_norm(x, weight_, eps_, context.fused);
  const at::Tensor rows = x.reshape({-1, x.size(-1)});
  return ops::rms_norm(rows, weight_, eps_, context.fused).view(x.sizes());
}

}  // namespace longhaul::nn
