#include "longhaul/ops/linear/linear.h"

#include <ATen/ops/add.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/sum.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "longhaul/base/error.h"
#include "longhaul/ops/linear/products.h"
#include "longhaul/ops/linear/side_by_side.h"
#include "longhaul/ops/node.h"

namespace longhaul::ops {
namespace {

at::Tensor projected(const at::Tensor& x, const ParameterPtr& weight,
                     const ParameterPtr& bias) {
  return linear_product(x, weight->weight(), bias ? bias->weight() : at::Tensor());
}

/// Of biases side by side: dy [T, sum n] is read once.
void add_bias_gradients(const std::vector<ParameterPtr>& biases, const at::Tensor& dy) {
  const auto frozen = [](const ParameterPtr& bias) { return bias->frozen(); };
  if (std::all_of(biases.begin(), biases.end(), frozen)) return;
  const at::Tensor sums = at::sum(dy, {0}, /*keepdim=*/false, at::kFloat);
  int64_t from = 0;
  for (const ParameterPtr& bias : biases) {
    const int64_t width = bias->slice().extent[0];
    if (!bias->frozen()) bias->grad().add_(sums.narrow(0, from, width));
    from += width;
  }
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
    at::Tensor y = projected(x, kept.weight, kept.bias);
    save(ctx, std::move(kept));
    return y;
  }

  static tensor_list backward(AutogradContext* ctx, tensor_list grads) {
    const at::Tensor dy = grads[0].contiguous();
    auto& [weight, bias, gradients, again] = saved<LinearSaved>(ctx);
    if (bias) add_bias_gradients({bias}, dy);
    at::Tensor dx;
    if (ctx->needs_input_grad(0)) dx = product(dy, weight->weight());
    if (again) {
      gradients->push(weight, {at::Tensor(), std::move(again)}, dy);
    } else {
      gradients->push(weight, ctx->get_saved_variables()[0], dy);
    }
    return {dx, Variable()};
  }
};

/// Projections whose weights follow each other in memory, in that order.
struct Joint {
  std::vector<ParameterPtr> weights;
  std::vector<ParameterPtr> biases;  ///< or none

  at::Tensor weight() const {
    std::vector<at::Tensor> parts;
    for (const ParameterPtr& w : weights) parts.push_back(w->weight());
    return joined_rows(parts);
  }

  at::Tensor projected(const at::Tensor& x) const {
    if (biases.empty()) return linear_product(x, weight());
    std::vector<at::Tensor> parts;
    for (const ParameterPtr& b : biases) parts.push_back(b->weight());
    return linear_product(x, weight(), at::cat(parts));
  }

  /// The columns of y [T, sum n], each its own tensor for autograd.
  std::vector<at::Tensor> slices(const at::Tensor& y) const {
    std::vector<at::Tensor> parts;
    int64_t from = 0;
    for (const ParameterPtr& w : weights) {
      const int64_t width = w->slice().extent[0];
      parts.push_back(y.narrow(1, from, width).detach());
      from += width;
    }
    return parts;
  }
};

struct JointSaved {
  Joint joint;
  WeightGradientsPtr gradients;
  std::shared_ptr<SavedInput> again;
};

struct JointLinearNode : Function<JointLinearNode> {
  static tensor_list forward(AutogradContext* ctx, const at::Tensor& x, JointSaved kept) {
    if (!kept.again) {
      ctx->save_for_backward({x});
    } else if (!kept.joint.weights.front()->frozen()) {
      kept.again->hold();
    }
    tensor_list parts = kept.joint.slices(kept.joint.projected(x));
    save(ctx, std::move(kept));
    return parts;
  }

  static tensor_list backward(AutogradContext* ctx, const tensor_list& grads) {
    auto& [joint, gradients, again] = saved<JointSaved>(ctx);
    at::Tensor dy = joined_columns(grads);
    if (!dy.defined()) dy = at::cat(grads, 1);
    add_bias_gradients(joint.biases, dy);
    at::Tensor dx;
    if (ctx->needs_input_grad(0)) dx = product(dy, joint.weight());
    if (again) {
      gradients->push(joint.weights, {at::Tensor(), std::move(again)}, dy);
    } else {
      gradients->push(joint.weights, ctx->get_saved_variables()[0], dy);
    }
    return {dx, Variable()};
  }
};

/// Numbers of projections in the order of their memory, cut where a product has to end.
std::vector<std::vector<size_t>> products_of(const std::vector<Projection>& projections) {
  const auto weight = [&](size_t i) { return projections[i].weight; };
  std::vector<size_t> order(projections.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::stable_sort(order, {}, [&](size_t i) {
    return reinterpret_cast<uintptr_t>(weight(i)->weight().data_ptr());
  });
  const auto joined = [&](size_t i, size_t next) {
    const ParameterPtr &a = weight(i), &b = weight(next);
    return a->frozen() == b->frozen() &&
           joined_rows({a->weight(), b->weight()}).defined();
  };
  std::vector<std::vector<size_t>> products;
  for (const size_t i : order) {
    if (products.empty() || !joined(products.back().back(), i)) products.emplace_back();
    products.back().push_back(i);
  }
  // By number: in which order gradients of the input add up is no matter of addresses.
  std::ranges::sort(products, {}, [](const auto& p) { return std::ranges::min(p); });
  return products;
}

void check_linear(const at::Tensor& x, const ParameterPtr& weight,
                  const ParameterPtr& bias) {
  LH_CHECK(x.dim() == 2 && x.size(1) == weight->slice().extent[1], "linear",
           "{} needs an input with {} features, got {} dims, last {}", weight->name(),
           weight->slice().extent[1], x.dim(), x.size(-1));
  LH_CHECK(!bias || bias->slice().extent[0] == weight->slice().extent[0], "linear",
           "{} has {} elements for {} features", bias ? bias->name() : "",
           bias ? bias->slice().extent[0] : 0, weight->slice().extent[0]);
  LH_ASSERT(!at::GradMode::is_enabled() || x.requires_grad(),
            "{}: its input is not part of a graph, so its gradient would "
            "silently be lost",
            weight->name());
}

struct BiasNode : Function<BiasNode> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& y,
                            ParameterPtr bias) {
    at::Tensor sum = at::add(y, bias->weight());
    save(ctx, std::move(bias));
    return sum;
  }
  static tensor_list backward(AutogradContext* ctx, tensor_list grads) {
    add_bias_gradients({saved<ParameterPtr>(ctx)}, grads[0]);
    return {grads[0], Variable()};
  }
};

}  // namespace

at::Tensor SavedInput::take() {
  LH_ASSERT(holders_ > 0, "a saved input is taken more often than it is held");
  if (!made_.defined()) made_ = make();
  if (--holders_ > 0) return made_;
  return std::exchange(made_, at::Tensor());
}

at::Tensor linear(const LinearInput& input, const ParameterPtr& weight,
                  const WeightGradientsPtr& gradients, const ParameterPtr& bias) {
  const at::Tensor& x = input.x;
  check_linear(x, weight, bias);
  if (!at::GradMode::is_enabled()) return projected(x, weight, bias);
  return LinearNode::apply(x, LinearSaved{weight, bias, gradients, input.again});
}

std::vector<at::Tensor> joint_linear(const LinearInput& input,
                                     const std::vector<Projection>& projections,
                                     const WeightGradientsPtr& gradients) {
  std::vector<at::Tensor> results(projections.size());
  for (const std::vector<size_t>& product : products_of(projections)) {
    if (product.size() == 1) {
      const auto& [weight, bias] = projections[product[0]];
      results[product[0]] = linear(input, weight, gradients, bias);
      continue;
    }
    Joint joint;
    for (const size_t i : product) {
      const auto& [weight, bias] = projections[i];
      check_linear(input.x, weight, bias);
      joint.weights.push_back(weight);
      if (bias) joint.biases.push_back(bias);
    }
    LH_ASSERT(joint.biases.empty() || joint.biases.size() == product.size(),
              "{}: only some projections beside it have a bias",
              joint.weights.front()->name());
    const std::vector<at::Tensor> parts =
        at::GradMode::is_enabled()
            ? JointLinearNode::apply(input.x, JointSaved{joint, gradients, input.again})
            : joint.slices(joint.projected(input.x));
    for (size_t i = 0; i < product.size(); ++i) results[product[i]] = parts[i];
  }
  return results;
}

at::Tensor add_bias(const at::Tensor& y, const ParameterPtr& bias) {
  LH_CHECK(y.dim() == 2 && y.size(1) == bias->slice().extent[0], "linear",
           "{} has {} elements for {} features", bias->name(), bias->slice().extent[0],
           y.size(-1));
  return BiasNode::apply(y, bias);
}

}  // namespace longhaul::ops
