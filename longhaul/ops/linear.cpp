#include "longhaul/ops/linear.h"

#include <ATen/ops/linear.h>
#include <ATen/ops/mm.h>

#include "longhaul/base/error.h"
#include "longhaul/ops/node.h"

namespace longhaul::ops {
namespace {

struct LinearSaved {
  ParameterPtr weight;
  WeightGradientsPtr gradients;
};

struct LinearNode : Function<LinearNode> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x,
                            ParameterPtr weight, WeightGradientsPtr gradients) {
    ctx->save_for_backward({x});
    at::Tensor y = at::linear(x, weight->weight());
    save(ctx, LinearSaved{std::move(weight), std::move(gradients)});
    return y;
  }

  static tensor_list backward(AutogradContext* ctx, tensor_list grads) {
    const at::Tensor dy = grads[0].contiguous();
    auto& [weight, gradients] = saved<LinearSaved>(ctx);
    const at::Tensor x = ctx->get_saved_variables()[0];
    at::Tensor dx;
    if (ctx->needs_input_grad(0)) dx = at::mm(dy, weight->weight());
    gradients->push(weight, x, dy);
    return {dx, Variable(), Variable()};
  }
};

}  // namespace

at::Tensor linear(const at::Tensor& x, const ParameterPtr& weight,
                  const WeightGradientsPtr& gradients) {
  LH_CHECK(x.dim() == 2 && x.size(1) == weight->slice().extent[1], "linear",
           "{} needs an input with {} features, got {} dims, last {}", weight->name(),
           weight->slice().extent[1], x.dim(), x.size(-1));
  if (!at::GradMode::is_enabled()) return at::linear(x, weight->weight());
  LH_ASSERT(x.requires_grad(),
            "{}: its input is not part of a graph, so its gradient would "
            "silently be lost",
            weight->name());
  return LinearNode::apply(x, weight, gradients);
}

}  // namespace longhaul::ops
