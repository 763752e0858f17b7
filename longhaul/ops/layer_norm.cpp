#include "longhaul/ops/layer_norm.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/native_layer_norm.h>
#include <ATen/ops/native_layer_norm_backward.h>

#include <utility>

#include "longhaul/base/error.h"
#include "longhaul/ops/common/node.h"

namespace longhaul::ops {
namespace {

struct LayerNormSaved {
  tensor::ParameterPtr weight;
  tensor::ParameterPtr bias;
};

void add_vector_gradient(const tensor::ParameterPtr& parameter,
                         const at::Tensor& gradient) {
  if (parameter->frozen()) return;
  at::Tensor grad = parameter->grad();
  grad.add_(gradient);
}

struct LayerNormNode : Function<LayerNormNode> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x,
                            LayerNormSaved kept, double eps) {
    const auto [y, mean, inverse] = at::native_layer_norm(
        x.to(at::kFloat), {x.size(1)}, kept.weight->weight().to(at::kFloat),
        kept.bias->weight().to(at::kFloat), eps);
    ctx->save_for_backward({x, mean, inverse});
    save(ctx, std::move(kept));
    return y.to(x.scalar_type());
  }

  static tensor_list backward(AutogradContext* ctx, tensor_list grads) {
    const auto& [weight, bias] = saved<LayerNormSaved>(ctx);
    const auto tensors = ctx->get_saved_variables();
    const at::Tensor& x = tensors[0];
    const auto [dx, dweight, dbias] = at::native_layer_norm_backward(
        grads[0].to(at::kFloat).contiguous(), x.to(at::kFloat), {x.size(1)}, tensors[1],
        tensors[2], weight->weight().to(at::kFloat), bias->weight().to(at::kFloat),
        {true, !weight->frozen(), !bias->frozen()});
    add_vector_gradient(weight, dweight);
    add_vector_gradient(bias, dbias);
    return {dx.to(x.scalar_type()), Variable(), Variable()};
  }
};

}  // namespace

at::Tensor layer_norm(const at::Tensor& x, const tensor::ParameterPtr& weight,
                      const tensor::ParameterPtr& bias, double eps) {
  LH_CHECK(x.dim() == 2 && x.size(1) == weight->slice().extent[0] &&
               x.size(1) == bias->slice().extent[0],
           "layer_norm", "{} has {} elements, the input's last dim {}", weight->name(),
           weight->slice().extent[0], x.size(-1));
  return LayerNormNode::apply(x.contiguous(), LayerNormSaved{weight, bias}, eps);
}

}  // namespace longhaul::ops
