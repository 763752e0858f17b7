#include "longhaul/ops/gelu.h"

#include <ATen/ops/empty_like.h>
#include <ATen/ops/gelu.h>

#include "longhaul/base/error.h"
#include "longhaul/ops/common/node.h"
#include "longhaul/ops/fused/fused.h"

namespace longhaul::ops {
namespace {

struct GeluNode : Function<GeluNode> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x, bool tanh) {
    ctx->save_for_backward({x});
    save(ctx, tanh);
    at::Tensor y = at::empty_like(x);
    fused::op<kernels::GeluForward>(x, tanh, y);
    return y;
  }

  static tensor_list backward(AutogradContext* ctx, tensor_list grads) {
    const at::Tensor x = ctx->get_saved_variables()[0];
    at::Tensor dx = at::empty_like(x);
    fused::op<kernels::GeluBackward>(grads[0].contiguous(), x, saved<bool>(ctx), dx);
    return {dx, Variable()};
  }
};

at::Tensor composite_gelu(const at::Tensor& x, bool tanh) {
  return at::gelu(x, tanh ? "tanh" : "none");
}

using Gelu =
    fused::Operation<composite_gelu, kernels::GeluForward, kernels::GeluBackward>;

}  // namespace

at::Tensor gelu(const at::Tensor& x, Activation activation, bool fused) {
  LH_ASSERT(activation != Activation::Silu, "GELU in the form of another activation");
  const bool tanh = activation == Activation::GeluTanh;
  if (!Gelu::has_kernels(fused, x)) return Gelu::composite(x, tanh);
  return GeluNode::apply(x.contiguous(), tanh);
}

}  // namespace longhaul::ops
