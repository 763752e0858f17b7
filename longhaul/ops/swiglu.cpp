#include "longhaul/ops/swiglu.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/silu.h>

#include "longhaul/base/error.h"
#include "longhaul/ops/fused.h"
#include "longhaul/ops/node.h"
#include "longhaul/ops/side_by_side.h"

namespace longhaul::ops {
namespace {

struct SwigluNode : Function<SwigluNode> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& gate,
                            const at::Tensor& up) {
    ctx->save_for_backward({gate, up});
    at::Tensor y = at::empty_like(gate, at::MemoryFormat::Contiguous);
    fused::swiglu_forward(gate, up, y);
    return y;
  }

  static tensor_list backward(AutogradContext* ctx, tensor_list grads) {
    const auto tensors = ctx->get_saved_variables();
    auto d = ColumnLayout({tensors[0], tensors[1]}).empty(tensors[0].options());
    fused::swiglu_backward(grads[0].contiguous(), tensors[0], tensors[1], d[0], d[1]);
    return d;
  }
};

}  // namespace

at::Tensor swiglu(const at::Tensor& gate, const at::Tensor& up, bool fused) {
  LH_CHECK(gate.sizes() == up.sizes() && gate.dim() == 2, "swiglu",
           "gate has {} elements, up {}", gate.numel(), up.numel());
  if (fused && fused::supports(fused::Form::Swiglu, gate)) {
    // The kernels know one stride for both.
    const bool rows = gate.stride(1) == 1 && up.stride(1) == 1;
    if (rows && gate.stride(0) == up.stride(0)) return SwigluNode::apply(gate, up);
    return SwigluNode::apply(gate.contiguous(), up.contiguous());
  }
  return (at::silu(gate.to(at::kFloat)) * up.to(at::kFloat)).to(gate.scalar_type());
}

}  // namespace longhaul::ops
