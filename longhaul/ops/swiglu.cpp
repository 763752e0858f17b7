#include "longhaul/ops/swiglu.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/silu.h>

#include "longhaul/base/error.h"
#include "longhaul/ops/fused.h"
#include "longhaul/ops/node.h"

namespace longhaul::ops {
namespace {

struct SwigluNode : Function<SwigluNode> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& gate,
                            const at::Tensor& up) {
    ctx->save_for_backward({gate, up});
    at::Tensor y = at::empty_like(gate);
    fused::swiglu_forward(gate, up, y);
    return y;
  }

  static tensor_list backward(AutogradContext* ctx, tensor_list grads) {
    const auto tensors = ctx->get_saved_variables();
    at::Tensor dgate = at::empty_like(tensors[0]);
    at::Tensor dup = at::empty_like(tensors[1]);
    fused::swiglu_backward(grads[0].contiguous(), tensors[0], tensors[1], dgate, dup);
    return {dgate, dup};
  }
};

}  // namespace

at::Tensor swiglu(const at::Tensor& gate, const at::Tensor& up, bool fused) {
  LH_CHECK(gate.sizes() == up.sizes() && gate.dim() == 2, "swiglu",
           "gate has {} elements, up {}", gate.numel(), up.numel());
  if (fused && fused::supports(fused::Form::Swiglu, gate)) {
    return SwigluNode::apply(gate.contiguous(), up.contiguous());
  }
  return (at::silu(gate.to(at::kFloat)) * up.to(at::kFloat)).to(gate.scalar_type());
}

}  // namespace longhaul::ops
