#include "longhaul/ops/embedding.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/index_select.h>

#include "longhaul/ops/node.h"

namespace longhaul::ops {
namespace {

struct EmbeddingNode : Function<EmbeddingNode> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& /*anchor*/,
                            const at::Tensor& ids, ParameterPtr table) {
    ctx->save_for_backward({ids});
    at::Tensor y = at::index_select(table->weight(), 0, ids);
    save(ctx, std::move(table));
    return y;
  }

  static tensor_list backward(AutogradContext* ctx, tensor_list grads) {
    const ParameterPtr& table = saved<ParameterPtr>(ctx);
    if (!table->frozen()) {
      const at::Tensor ids = ctx->get_saved_variables()[0];
      at::Tensor grad = table->grad();
      grad.index_add_(0, ids, grads[0].to(grad.scalar_type()));
    }
    return {Variable(), Variable(), Variable()};
  }
};

}  // namespace

at::Tensor embedding(const at::Tensor& ids, const ParameterPtr& table) {
  if (!at::GradMode::is_enabled()) return at::index_select(table->weight(), 0, ids);
  const at::Tensor anchor =
      at::empty({0}, table->weight().options()).set_requires_grad(true);
  return EmbeddingNode::apply(anchor, ids, table);
}

}  // namespace longhaul::ops
