#include "longhaul/nn/norm.h"

#include <ATen/TensorOperators.h>

#include "longhaul/ops/layer_norm.h"

namespace longhaul::nn {

Norm::Norm(tensor::ParameterSet& parameters, const families::Norm& form)
    : weight_(parameters.take(form.name + ".weight")), eps_(form.eps), form_(form.form) {
  if (form.kind == families::Norm::Kind::Layer) {
    bias_ = parameters.take(form.name + ".bias");
  }
}

at::Tensor Norm::forward(const at::Tensor& x, const ForwardContext& context) const {
  if (bias_) return ops::layer_norm(x, weight_, bias_, eps_);
  return ops::rms_norm(x, weight_, eps_, context.fused, form_);
}

ops::ResidualNorm Norm::residual(const at::Tensor& x, const ForwardContext& context,
                                 const at::Tensor& delta) const {
  if (!bias_)
    return ops::residual_rms_norm(x, delta, weight_, eps_, context.fused, form_);
  const at::Tensor sum = delta.defined() ? x + delta : x;
  return {sum, ops::layer_norm(sum, weight_, bias_, eps_)};
}

}  // namespace longhaul::nn
