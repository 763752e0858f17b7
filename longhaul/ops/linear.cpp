#include "longhaul/ops/linear.h"

#include <ATen/ops/add.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/sum.h>

#include "longhaul/base/error.h"
#include "longhaul/ops/node.h"

namespace longhaul::ops {
namespace {

at::Tensor product(const at::Tensor& x, const ParameterPtr& weight,
                   const ParameterPtr& bias) {
  if (!bias) return at::linear(x, weight->weight());
  return at::linear(x, weight->weight(), bias->weight());
}

void add_bias_gradient(const ParameterPtr& bias, const at::Tensor& dy) {
  if (bias->frozen()) return;
  at::Tensor grad = bias->grad();
  grad.add_(at::sum(dy, {0}, /*keepdim=*/false, at::kFloat));
}

struct LinearSaved {
  ParameterPtr weight;
  ParameterPtr bias;
  WeightGradientsPtr gradients;
  std::shared_ptr<SavedInput> again;
};

struct LinearNode : Function<LinearNode> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x, LinearSaved kept) {
    // A frozen weight takes nothing.
    if (!kept.again) {
      ctx->save_for_backward({x});
    } else if (!kept.weight->frozen()) {
      kept.again->hold();
    }
    at::Tensor y = product(x, kept.weight, kept.bias);
    save(ctx, std::move(kept));
    return y;
  }

  static tensor_list backward(AutogradContext* ctx, tensor_list grads) {
    const at::Tensor dy = grads[0].contiguous();
    auto& [weight, bias, gradients, again] = saved<LinearSaved>(ctx);
    if (bias) add_bias_gradient(bias, dy);
    at::Tensor dx;
    if (ctx->needs_input_grad(0)) dx = at::mm(dy, weight->weight());
    if (again) {
      gradients->push(weight, {at::Tensor(), std::move(again)}, dy);
    } else {
      gradients->push(weight, ctx->get_saved_variables()[0], dy);
    }
    return {dx, Variable()};
  }
};

struct BiasNode : Function<BiasNode> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& y,
                            ParameterPtr bias) {
    at::Tensor sum = at::add(y, bias->weight());
    save(ctx, std::move(bias));
    return sum;
  }
  static tensor_list backward(AutogradContext* ctx, tensor_list grads) {
    add_bias_gradient(saved<ParameterPtr>(ctx), grads[0]);
    return {grads[0], Variable()};
  }
};

}  // namespace

at::Tensor SavedInput::take() {
  LH_ASSERT(holders_ > 0, "a saved input is taken more often than it is held");
  if (!made_.defined()) made_ = make();
  const at::Tensor result = made_;
  if (--holders_ == 0) made_.reset();
  return result;
}

at::Tensor linear(const LinearInput& input, const ParameterPtr& weight,
                  const WeightGradientsPtr& gradients, const ParameterPtr& bias) {
  const at::Tensor& x = input.x;
  LH_CHECK(x.dim() == 2 && x.size(1) == weight->slice().extent[1], "linear",
           "{} needs an input with {} features, got {} dims, last {}", weight->name(),
           weight->slice().extent[1], x.dim(), x.size(-1));
  LH_CHECK(!bias || bias->slice().extent[0] == weight->slice().extent[0], "linear",
           "{} has {} elements for {} features", bias ? bias->name() : "",
           bias ? bias->slice().extent[0] : 0, weight->slice().extent[0]);
  if (!at::GradMode::is_enabled()) return product(x, weight, bias);
  LH_ASSERT(x.requires_grad(),
            "{}: its input is not part of a graph, so its gradient would "
            "silently be lost",
            weight->name());
  return LinearNode::apply(x, LinearSaved{weight, bias, gradients, input.again});
}

at::Tensor add_bias(const at::Tensor& y, const ParameterPtr& bias) {
  LH_CHECK(y.dim() == 2 && y.size(1) == bias->slice().extent[0], "linear",
           "{} has {} elements for {} features", bias->name(), bias->slice().extent[0],
           y.size(-1));
  return BiasNode::apply(y, bias);
}

}  // namespace longhaul::ops
