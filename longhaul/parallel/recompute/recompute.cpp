#include "longhaul/parallel/recompute/recompute.h"

#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <utility>

#include "longhaul/ops/common/node.h"

namespace longhaul::parallel {
namespace {

using ops::AutogradContext;
using ops::tensor_list;

struct BlockSaved {
  BlockFunction block;
  std::shared_ptr<Offload> offload;
  std::vector<Offload::KeptPtr> kept;  ///< the inputs, where `offload` is given
};

struct RecomputeNode : ops::Function<RecomputeNode> {
  static tensor_list forward(AutogradContext* ctx, at::TensorList x, BlockFunction block,
                             std::shared_ptr<Offload> offload) {
    BlockSaved saved{std::move(block), std::move(offload), {}};
    if (saved.offload) {
      for (const at::Tensor& tensor : x) {
        saved.kept.push_back(saved.offload->keep(tensor));
      }
    } else {
      ctx->save_for_backward(x.vec());
    }
    tensor_list y = saved.block(x.vec());
    for (const auto& kept : saved.kept) saved.offload->left(kept);
    ops::save(ctx, std::move(saved));
    return y;
  }

  static tensor_list backward(AutogradContext* ctx, const tensor_list& grads) {
    const BlockSaved& saved = ops::saved<BlockSaved>(ctx);
    tensor_list kept = ctx->get_saved_variables();
    // The loop runs from the last tensor to the first, the order in which Offload fetches
    // tensors ahead.
    kept.resize(std::max(kept.size(), saved.kept.size()));
    for (size_t i = saved.kept.size(); i-- > 0;) {
      kept[i] = saved.offload->take(saved.kept[i]);
    }
    tensor_list x;
    for (const at::Tensor& tensor : kept) {
      x.push_back(tensor.detach().set_requires_grad(true));
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

nn::Tensors recompute(const BlockFunction& block, const nn::Tensors& x,
                      const std::shared_ptr<Offload>& offload) {
  if (!at::GradMode::is_enabled()) return block(x);
  return RecomputeNode::apply(at::TensorList(x), block,
                              x[0].is_cpu() ? nullptr : offload);
}

}  // namespace longhaul::parallel
