#include "longhaul/parallel/recompute/recompute.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <torch/csrc/autograd/autograd.h>

#include "longhaul/ops/node.h"

namespace longhaul::parallel {
namespace {

using ops::AutogradContext;
using ops::tensor_list;
using ops::Variable;

struct BlockSaved {
  nn::BlockFunction block;
  at::Device device;
};

at::Tensor host_copy(const at::Tensor& x) {
  at::Tensor host =
      at::empty(x.sizes(), x.options().device(at::kCPU).pinned_memory(true));
  return host.copy_(x, /*non_blocking=*/true);
}

struct RecomputeNode : ops::Function<RecomputeNode> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x,
                            nn::BlockFunction block, bool offload) {
    ctx->save_for_backward({offload && !x.is_cpu() ? host_copy(x) : x});
    at::Tensor y = block(x);
    ops::save(ctx, BlockSaved{std::move(block), x.device()});
    return y;
  }

  static tensor_list backward(AutogradContext* ctx, tensor_list grads) {
    const BlockSaved& saved = ops::saved<BlockSaved>(ctx);
    const at::Tensor x = ctx->get_saved_variables()[0]
                             .to(saved.device, /*non_blocking=*/true)
                             .detach()
                             .set_requires_grad(true);
    at::Tensor y;
    {
      const at::AutoGradMode grad_mode(true);
      y = saved.block(x);
    }
    torch::autograd::backward({y}, {grads[0]});
    return {x.grad(), Variable(), Variable()};
  }
};

}  // namespace

at::Tensor recompute(const nn::BlockFunction& block, const at::Tensor& x, bool offload) {
  if (!at::GradMode::is_enabled()) return block(x);
  return RecomputeNode::apply(x, block, offload);
}

}  // namespace longhaul::parallel
