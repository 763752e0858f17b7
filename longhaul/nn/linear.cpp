#include "longhaul/nn/linear.h"

#include "longhaul/ops/embedding.h"
#include "longhaul/ops/linear.h"
#include "longhaul/ops/rms_norm.h"

namespace longhaul::nn {

Linear::Linear(ParameterSet& parameters, const std::string& name)
    : weight_(parameters.take(name + ".weight")) {}

at::Tensor Linear::forward(const ops::LinearInput& x,
                           const ForwardContext& context) const {
  return ops::linear(x, weight_, context.weight_gradients);
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
  return ops::rms_norm(x, weight_, eps_, context.fused);
}

}  // namespace longhaul::nn
