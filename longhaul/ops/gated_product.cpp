#include "longhaul/ops/gated_product.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/silu.h>

#include <optional>

#include "longhaul/base/error.h"
#include "longhaul/ops/common/node.h"
#include "longhaul/ops/fused/fused.h"
#include "longhaul/ops/linear/side_by_side.h"

namespace longhaul::ops {
namespace {

struct GatedProductNode : Function<GatedProductNode> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& gate,
                            const at::Tensor& up,
                            const std::optional<at::Tensor>& weights,
                            Activation activation) {
    ctx->save_for_backward({gate, up, weights.value_or(at::Tensor())});
    save(ctx, activation);
    at::Tensor y = at::empty_like(gate, at::MemoryFormat::Contiguous);
    fused::op<kernels::GatedProductForward>(gate, up, weights.value_or(at::Tensor()),
                                            activation, y);
    return y;
  }

  static tensor_list backward(AutogradContext* ctx, tensor_list grads) {
    const auto tensors = ctx->get_saved_variables();
    const at::Tensor &gate = tensors[0], &up = tensors[1], &weights = tensors[2];
    auto d = ColumnLayout({gate, up}).empty(gate.options());
    at::Tensor dweights;
    if (weights.defined()) dweights = at::empty_like(weights);
    fused::op<kernels::GatedProductBackward>(grads[0].contiguous(), gate, up, weights,
                                             saved<Activation>(ctx), d[0], d[1],
                                             dweights);
    return {d[0], d[1], dweights, Variable()};
  }
};

at::Tensor activated(const at::Tensor& x, Activation activation) {
  if (activation == Activation::Silu) return at::silu(x);
  return at::gelu(x, activation == Activation::GeluTanh ? "tanh" : "none");
}

at::Tensor composite_product(const at::Tensor& gate, const at::Tensor& up,
                             Activation activation, const at::Tensor& weights) {
  at::Tensor y = activated(gate.to(at::kFloat), activation) * up.to(at::kFloat);
  if (weights.defined()) y = y * weights.unsqueeze(1);
  return y.to(gate.scalar_type());
}

using GatedProduct = fused::Operation<composite_product, kernels::GatedProductForward,
                                      kernels::GatedProductBackward>;

}  // namespace

at::Tensor gated_product(const at::Tensor& gate, const at::Tensor& up,
                         Activation activation, bool fused, const at::Tensor& weights) {
  LH_CHECK(gate.sizes() == up.sizes() && gate.dim() == 2, "gated product",
           "gate has {} elements, up {}", gate.numel(), up.numel());
  if (!GatedProduct::has_kernels(fused, gate)) {
    return GatedProduct::composite(gate, up, activation, weights);
  }
  const auto factor =
      weights.defined() ? std::optional(weights.contiguous()) : std::nullopt;
  // The kernels take one stride for gate and up.
  const bool rows = gate.stride(1) == 1 && up.stride(1) == 1;
  if (rows && gate.stride(0) == up.stride(0)) {
    return GatedProductNode::apply(gate, up, factor, activation);
  }
  return GatedProductNode::apply(gate.contiguous(), up.contiguous(), factor, activation);
}

}  // namespace longhaul::ops
