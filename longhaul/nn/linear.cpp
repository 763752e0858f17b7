#include "longhaul/nn/linear.h"

#include "longhaul/ops/embedding.h"
#include "longhaul/ops/linear.h"
#include "longhaul/ops/rms_norm.h"

namespace longhaul::nn {

Linear::Linear(const std::string& name, int64_t in, int64_t out, double stddev)
    : weight_(make_parameter(name + ".weight", {out, in}, {Init::Kind::Normal, stddev})) {
}

at::Tensor Linear::forward(const ops::LinearInput& x,
                           const ForwardContext& context) const {
  return ops::linear(x, weight_, context.weight_gradients);
}

Embedding::Embedding(const std::string& name, int64_t vocab, int64_t hidden,
                     double stddev)
    : weight_(make_parameter(name + ".weight", {vocab, hidden},
                             {Init::Kind::Normal, stddev})) {}

at::Tensor Embedding::forward(const at::Tensor& ids,
                              const ForwardContext& context) const {
  return context.leave(ops::embedding(ids, weight_));
}

RmsNorm::RmsNorm(const std::string& name, int64_t hidden, double eps)
    : weight_(make_parameter(name + ".weight", {hidden}, {Init::Kind::Ones})),
      eps_(eps) {}

at::Tensor RmsNorm::forward(const at::Tensor& x, const ForwardContext& context) const {
  return ops::rms_norm(x, weight_, eps_, context.fused);
}

}  // namespace longhaul::nn
