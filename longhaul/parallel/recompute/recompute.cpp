#include "longhaul/parallel/recompute/recompute.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <torch/csrc/autograd/autograd.h>

#include "longhaul/ops/node.h"

namespace longhaul::parallel {
namespace {

using ops::AutogradContext;
using ops::tensor_list;

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
  static tensor_list forward(AutogradContext* ctx, at::TensorList x,
                             nn::BlockFunction block, bool offload) {
    tensor_list kept;
    for (const at::Tensor& tensor : x) {
      kept.push_back(offload && !tensor.is_cpu() ? host_copy(tensor) : tensor);
    }
    ctx->save_for_backward(std::move(kept));
    tensor_list y = block(x.vec());
    ops::save(ctx, BlockSaved{std::move(block), x[0].device()});
    return y;
  }

  static tensor_list backward(AutogradContext* ctx, tensor_list grads) {
    const BlockSaved& saved = ops::saved<BlockSaved>(ctx);
    tensor_list x;
    for (const at::Tensor& kept : ctx->get_saved_variables()) {
      x.push_back(
          kept.to(saved.device, /*non_blocking=*/true).detach().set_requires_grad(true));
    }
    tensor_list y;
    {
      const at::AutoGradMode grad_mode(true);
      y = saved.block(x);
    }
    torch::autograd::backward(y, grads);
    tensor_list result;
    for (const at::Tensor& tensor : x) result.push_back(tensor.grad());
    result.resize(result.size() + 2);
    return result;
  }
};

}  // namespace

nn::Tensors recompute(const nn::BlockFunction& block, const nn::Tensors& x,
                      bool offload) {
  if (!at::GradMode::is_enabled()) return block(x);
  return RecomputeNode::apply(at::TensorList(x), block, offload);
}

}  // namespace longhaul::parallel
