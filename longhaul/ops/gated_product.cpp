#include "longhaul/ops/gated_product.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/silu.h>

#include "longhaul/base/error.h"
#include "longhaul/ops/fused/fused.h"
#include "longhaul/ops/linear/side_by_side.h"
#include "longhaul/ops/node.h"

namespace longhaul::ops {
namespace {

struct GatedProductNode : Function<GatedProductNode> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& gate,
                            const at::Tensor& up, Activation activation) {
    ctx->save_for_backward({gate, up});
    save(ctx, activation);
    at::Tensor y = at::empty_like(gate, at::MemoryFormat::Contiguous);
    fused::gated_product_forward(gate, up, activation, y);
    return y;
  }

  static tensor_list backward(AutogradContext* ctx, tensor_list grads) {
    const auto tensors = ctx->get_saved_variables();
    auto d = ColumnLayout({tensors[0], tensors[1]}).empty(tensors[0].options());
    fused::gated_product_backward(grads[0].contiguous(), tensors[0], tensors[1],
                                  saved<Activation>(ctx), d[0], d[1]);
    return {d[0], d[1], Variable()};
  }
};

at::Tensor activated(const at::Tensor& x, Activation activation) {
  if (activation == Activation::Silu) return at::silu(x);
  return at::gelu(x, activation == Activation::GeluTanh ? "tanh" : "none");
}

}  // namespace

at::Tensor gated_product(const at::Tensor& gate, const at::Tensor& up,
                         Activation activation, bool fused) {
  LH_CHECK(gate.sizes() == up.sizes() && gate.dim() == 2, "gated product",
           "gate has {} elements, up {}", gate.numel(), up.numel());
  if (fused && fused::supports(gate, fused::gated_product_forward,
                               fused::gated_product_backward)) {
    // The kernels take one stride for gate and up.
    const bool rows = gate.stride(1) == 1 && up.stride(1) == 1;
    if (rows && gate.stride(0) == up.stride(0)) {
      return GatedProductNode::apply(gate, up, activation);
    }
    return GatedProductNode::apply(gate.contiguous(), up.contiguous(), activation);
  }
  return (activated(gate.to(at::kFloat), activation) * up.to(at::kFloat))
      .to(gate.scalar_type());
}

}  // namespace longhaul::ops
