#include "longhaul/ops/linear/linear.h"

#include <ATen/ops/add.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/sum.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "longhaul/base/error.h"
#include "longhaul/ops/common/node.h"
#include "longhaul/ops/linear/products.h"
#include "longhaul/ops/linear/side_by_side.h"

namespace longhaul::ops {
namespace {

/// Adds the gradients of the biases of several projections. Their results lie side by
/// side, so that dy [T, sum n] is read once.
void add_bias_gradients(const std::vector<tensor::ParameterPtr>& biases,
                        const at::Tensor& dy) {
  const auto frozen = [](const tensor::ParameterPtr& bias) { return bias->frozen(); };
  if (std::all_of(biases.begin(), biases.end(), frozen)) return;
  const at::Tensor sums = at::sum(dy, {0}, /*keepdim=*/false, at::kFloat);
  int64_t from = 0;
  for (const tensor::ParameterPtr& bias : biases) {
    const int64_t width = bias->slice().extent[0];
    if (!bias->frozen()) bias->grad().add_(sums.narrow(0, from, width));
    from += width;
  }
}

/// Projections of one input whose weights follow each other in memory, in that order, so
/// that one product computes all of them.
struct Joint {
  std::vector<tensor::ParameterPtr> weights;
  std::vector<tensor::ParameterPtr> biases;  ///< one for each weight, or none at all

  /// Returns whether the weights are frozen; either all of them are, or none is.
  bool frozen() const { return weights.front()->frozen(); }

  at::Tensor weight() const {
    return weights.size() == 1 ? weights[0]->weight() : joined_rows(weights_of(weights));
  }

  at::Tensor bias() const {
    if (biases.empty()) return {};
    return biases.size() == 1 ? biases[0]->weight() : at::cat(weights_of(biases));
  }

  /// Returns the results: the columns of [T, sum n], each a tensor of its own for
  /// autograd.
  tensor_list projected(const at::Tensor& x) const {
    const at::Tensor y = linear_product(x, weight(), bias());
    if (weights.size() == 1) return {y};
    tensor_list parts;
    int64_t from = 0;
    for (const tensor::ParameterPtr& w : weights) {
      const int64_t width = w->slice().extent[0];
      parts.push_back(y.narrow(1, from, width).detach());
      from += width;
    }
    return parts;
  }

 private:
  static std::vector<at::Tensor> weights_of(
      const std::vector<tensor::ParameterPtr>& parameters) {
    std::vector<at::Tensor> all;
    for (const tensor::ParameterPtr& p : parameters) all.push_back(p->weight());
    return all;
  }
};

struct LinearSaved {
  Joint joint;
  WeightGradientsPtr gradients;
  std::shared_ptr<SavedInput> again;
  std::shared_ptr<BesideSum> beside;
};

struct LinearNode : Function<LinearNode> {
  static tensor_list forward(AutogradContext* ctx, const at::Tensor& x,
                             LinearSaved kept) {
    if (!kept.joint.frozen()) {  // frozen weights have no gradient
      if (kept.again) {
        kept.again->hold();
      } else {
        ctx->save_for_backward({x});
      }
    }
    tensor_list parts = kept.joint.projected(x);
    save(ctx, std::move(kept));
    return parts;
  }

  static tensor_list backward(AutogradContext* ctx, const tensor_list& grads) {
    auto& [joint, gradients, again, beside] = saved<LinearSaved>(ctx);
    const at::Tensor dy = matrix_of_columns(grads);
    add_bias_gradients(joint.biases, dy);
    if (again && beside && gradients->immediate()) again->begin();
    at::Tensor dx;
    if (ctx->needs_input_grad(0)) dx = product(dy, joint.weight());
    if (joint.frozen()) return {dx, Variable()};
    // The input is detached, since its graph refers to `beside`.
    const LinearInput x = again ? LinearInput(at::Tensor(), std::move(again))
                                : LinearInput(ctx->get_saved_variables()[0].detach());
    if (!beside || !dx.defined()) {
      gradients->push(joint.weights, x, dy);
    } else {
      beside->push_back([weights = joint.weights, queue = gradients, x, dy] {
        queue->push(weights, x, dy);
      });
    }
    return {dx, Variable()};
  }
};

/// Returns the numbers of projections in the order of their memory, one list for each
/// product.
std::vector<std::vector<size_t>> products_of(const std::vector<Projection>& projections) {
  const auto weight = [&](size_t i) { return projections[i].weight; };
  std::vector<size_t> order(projections.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::stable_sort(order, {}, [&](size_t i) {
    return reinterpret_cast<uintptr_t>(weight(i)->weight().data_ptr());
  });
  const auto joined = [&](size_t i, size_t next) {
    const tensor::ParameterPtr &a = weight(i), &b = weight(next);
    return a->frozen() == b->frozen() &&
           joined_rows({a->weight(), b->weight()}).defined();
  };
  std::vector<std::vector<size_t>> products;
  for (const size_t i : order) {
    if (products.empty() || !joined(products.back().back(), i)) products.emplace_back();
    products.back().push_back(i);
  }
  // The products are sorted by number. So the order in which gradients of the input are
  // added does not depend on addresses.
  std::ranges::sort(products, {}, [](const auto& p) { return std::ranges::min(p); });
  return products;
}

void check_linear(const at::Tensor& x, const tensor::ParameterPtr& weight,
                  const tensor::ParameterPtr& bias) {
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
                            tensor::ParameterPtr bias) {
    at::Tensor sum = at::add(y, bias->weight());
    save(ctx, std::move(bias));
    return sum;
  }
  static tensor_list backward(AutogradContext* ctx, tensor_list grads) {
    add_bias_gradients({saved<tensor::ParameterPtr>(ctx)}, grads[0]);
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

at::Tensor linear(const LinearInput& input, const tensor::ParameterPtr& weight,
                  const WeightGradientsPtr& gradients, const tensor::ParameterPtr& bias) {
  return joint_linear(input, {{weight, bias}}, gradients)[0];
}

std::vector<at::Tensor> joint_linear(const LinearInput& input,
                                     const std::vector<Projection>& projections,
                                     const WeightGradientsPtr& gradients) {
  std::vector<at::Tensor> results(projections.size());
  for (const std::vector<size_t>& product : products_of(projections)) {
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
    const tensor_list parts =
        at::GradMode::is_enabled()
            ? LinearNode::apply(input.x,
                                LinearSaved{joint, gradients, input.again, input.beside})
            : joint.projected(input.x);
    for (size_t i = 0; i < product.size(); ++i) results[product[i]] = parts[i];
  }
  return results;
}

at::Tensor add_bias(const at::Tensor& y, const tensor::ParameterPtr& bias) {
  LH_CHECK(y.dim() == 2 && y.size(1) == bias->slice().extent[0], "linear",
           "{} has {} elements for {} features", bias->name(), bias->slice().extent[0],
           y.size(-1));
  return BiasNode::apply(y, bias);
}

}  // namespace longhaul::ops
