#include "longhaul/ops/rms_norm.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/mean.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/rsqrt.h>
#include <ATen/ops/sum.h>

#include "longhaul/base/error.h"
#include "longhaul/ops/fused.h"
#include "longhaul/ops/node.h"

namespace longhaul::ops {
namespace {

/// y = x * w for the composite form: the handle's weight stays out of the graph.
struct ScaleNode : Function<ScaleNode> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x,
                            ParameterPtr weight) {
    ctx->save_for_backward({x});
    at::Tensor y = at::mul(x, weight->weight());
    save(ctx, std::move(weight));
    return y;
  }

  static tensor_list backward(AutogradContext* ctx, tensor_list grads) {
    const ParameterPtr& weight = saved<ParameterPtr>(ctx);
    const at::Tensor x = ctx->get_saved_variables()[0];
    if (!weight->frozen()) {
      at::Tensor grad = weight->grad();
      grad.add_(at::sum(at::mul(grads[0].to(at::kFloat), x.to(at::kFloat)), {0}));
    }
    return {at::mul(grads[0], weight->weight()), Variable()};
  }
};

struct NormSaved {
  ParameterPtr weight;
};

struct RmsNormNode : Function<RmsNormNode> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x,
                            ParameterPtr weight, double eps) {
    at::Tensor y = at::empty_like(x);
    at::Tensor inverse_rms = at::empty({x.size(0)}, x.options().dtype(at::kFloat));
    fused::rms_norm_forward(x, weight->weight(), eps, y, inverse_rms);
    ctx->save_for_backward({x, inverse_rms});
    save(ctx, NormSaved{std::move(weight)});
    return y;
  }

  static tensor_list backward(AutogradContext* ctx, tensor_list grads) {
    const ParameterPtr& weight = saved<NormSaved>(ctx).weight;
    const auto tensors = ctx->get_saved_variables();
    at::Tensor dx = at::empty_like(tensors[0]);
    fused::rms_norm_backward(grads[0].contiguous(), tensors[0], tensors[1],
                             weight->weight(), dx, weight->grad());
    return {dx, Variable(), Variable()};
  }
};

}  // namespace

at::Tensor rms_norm(const at::Tensor& x, const ParameterPtr& weight, double eps,
                    bool fused) {
  LH_CHECK(x.dim() == 2 && x.size(1) == weight->slice().extent[0], "rms_norm",
           "{} has {} elements, the input's last dim {}", weight->name(),
           weight->slice().extent[0], x.size(-1));
  if (fused && fused::supports(fused::Form::RmsNorm, x) &&
      fused::supports_gradient(weight->grad())) {
    return RmsNormNode::apply(x.contiguous(), weight, eps);
  }
  const at::Tensor wide = x.to(at::kFloat);
  const at::Tensor normal =
      wide * at::rsqrt(at::mean(wide * wide, {-1}, /*keepdim=*/true) + eps);
  return ScaleNode::apply(normal.to(x.scalar_type()), weight);
}

}  // namespace longhaul::ops
