#include "longhaul/parallel/recompute/recompute.h"

#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/autograd.h>

#include "longhaul/ops/node.h"

namespace longhaul::parallel {
namespace {

using ops::AutogradContext;
using ops::tensor_list;
using ops::Variable;

struct RecomputeNode : ops::Function<RecomputeNode> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x,
                            nn::BlockFunction block) {
    ctx->save_for_backward({x});
    at::Tensor y = block(x);
    ops::save(ctx, std::move(block));
    return y;
  }

  static tensor_list backward(AutogradContext* ctx, tensor_list grads) {
    const at::Tensor x = ctx->get_saved_variables()[0].detach().set_requires_grad(true);
    at::Tensor y;
    {
      const at::AutoGradMode grad_mode(true);
      y = ops::saved<nn::BlockFunction>(ctx)(x);
    }
    torch::autograd::backward({y}, {grads[0]});
    return {x.grad(), Variable()};
  }
};

}  // namespace

at::Tensor recompute(const nn::BlockFunction& block, const at::Tensor& x) {
  if (!at::GradMode::is_enabled()) return block(x);
  return RecomputeNode::apply(x, block);
}

}  // namespace longhaul::parallel
