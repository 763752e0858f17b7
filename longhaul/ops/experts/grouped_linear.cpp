#include "longhaul/ops/experts/grouped_linear.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <utility>

#include "longhaul/base/error.h"
#include "longhaul/ops/linear/products.h"
#include "longhaul/ops/linear/side_by_side.h"
#include "longhaul/ops/node.h"

// Shapes: R rows, K features, N = sum n_i outputs of each row.

namespace longhaul::ops {
namespace {

/// The rows of each expert that has any, as the host knows them.
struct ExpertRows {
  size_t expert;
  int64_t first, count;
};

std::vector<ExpertRows> rows_of_experts(const at::Tensor& offsets) {
  const at::Tensor host = offsets.to(at::kCPU);
  const auto* at = host.const_data_ptr<int32_t>();
  std::vector<ExpertRows> all;
  for (int64_t e = 0; e + 1 < host.size(0); ++e) {
    if (at[e + 1] > at[e]) {
      all.push_back({static_cast<size_t>(e), at[e], at[e + 1] - at[e]});
    }
  }
  return all;
}

struct GroupedSaved {
  ExpertWeights weights;
  at::Tensor offsets;
  WeightGradientsPtr gradients;
  std::shared_ptr<SavedInput> again;

  int64_t width(size_t i) const { return weights.front()[i]->slice().extent[0]; }
  int64_t width() const {
    int64_t sum = 0;
    for (size_t i = 0; i < weights.front().size(); ++i) sum += width(i);
    return sum;
  }
  bool frozen() const {
    return std::ranges::all_of(weights, [](const auto& expert) {
      return std::ranges::all_of(expert, [](const auto& w) { return w->frozen(); });
    });
  }
};

/// Returns the rows' products, [R, N].
at::Tensor projected(const at::Tensor& x, const GroupedSaved& s) {
  at::Tensor y = at::empty({x.size(0), s.width()}, x.options());
  for (const auto& [expert, first, count] : rows_of_experts(s.offsets)) {
    int64_t from = 0;
    for (const tensor::ParameterPtr& w : s.weights[expert]) {
      const int64_t n = w->slice().extent[0];
      y.narrow(0, first, count)
          .narrow(1, from, n)
          .copy_(linear_product(x.narrow(0, first, count), w->weight()));
      from += n;
    }
  }
  return y;
}

/// Returns the gradient of the rows, [R, K], for dy [R, N].
at::Tensor gradient_of_rows(const at::Tensor& dy, const GroupedSaved& s) {
  const int64_t features = s.weights.front().front()->slice().extent[1];
  at::Tensor dx = at::empty({dy.size(0), features}, dy.options());
  for (const auto& [expert, first, count] : rows_of_experts(s.offsets)) {
    at::Tensor sum;
    int64_t from = 0;
    for (const tensor::ParameterPtr& w : s.weights[expert]) {
      const int64_t n = w->slice().extent[0];
      const at::Tensor part = product(
          dy.narrow(0, first, count).narrow(1, from, n).contiguous(), w->weight());
      sum = sum.defined() ? sum.add_(part) : part;
      from += n;
    }
    dx.narrow(0, first, count).copy_(sum);
  }
  return dx;
}

void accumulate(const ExpertWeights& weights, const at::Tensor& offsets,
                const at::Tensor& x, const at::Tensor& dy) {
  for (const auto& [expert, first, count] : rows_of_experts(offsets)) {
    int64_t from = 0;
    for (const tensor::ParameterPtr& w : weights[expert]) {
      const int64_t n = w->slice().extent[0];
      if (!w->frozen()) {
        accumulate_weight_gradient(
            {w}, x.narrow(0, first, count),
            dy.narrow(0, first, count).narrow(1, from, n).contiguous());
      }
      from += n;
    }
  }
}

/// Returns the columns of y for each projection, each a tensor of its own for autograd.
tensor_list columns_of(const at::Tensor& y, const GroupedSaved& s) {
  tensor_list parts;
  int64_t from = 0;
  for (size_t i = 0; i < s.weights.front().size(); ++i) {
    parts.push_back(y.narrow(1, from, s.width(i)).detach());
    from += s.width(i);
  }
  return parts;
}

at::Tensor gradient_of_columns(const tensor_list& grads) {
  if (grads.size() == 1) return grads[0].contiguous();
  const at::Tensor dy = joined_columns(grads);
  return dy.defined() ? dy : at::cat(grads, 1);
}

struct GroupedNode : Function<GroupedNode> {
  static tensor_list forward(AutogradContext* ctx, const at::Tensor& x,
                             GroupedSaved kept) {
    if (!kept.again) {
      ctx->save_for_backward({x});
    } else if (!kept.frozen()) {
      kept.again->hold();  // frozen weights take nothing
    }
    tensor_list parts = columns_of(projected(x, kept), kept);
    save(ctx, std::move(kept));
    return parts;
  }

  static tensor_list backward(AutogradContext* ctx, const tensor_list& grads) {
    auto& s = saved<GroupedSaved>(ctx);
    const at::Tensor dy = gradient_of_columns(grads);
    at::Tensor dx;
    if (ctx->needs_input_grad(0)) dx = gradient_of_rows(dy, s);
    if (!s.frozen()) {
      const LinearInput x = s.again ? LinearInput(at::Tensor(), std::move(s.again))
                                    : LinearInput(ctx->get_saved_variables()[0]);
      s.gradients->push(
          [weights = s.weights, offsets = s.offsets](const at::Tensor& rows,
                                                     const at::Tensor& of) {
            accumulate(weights, offsets, rows, of);
          },
          x, dy);
    }
    return {dx, Variable()};
  }
};

}  // namespace

std::vector<at::Tensor> grouped_linear(const LinearInput& rows, const at::Tensor& offsets,
                                       const ExpertWeights& weights,
                                       const WeightGradientsPtr& gradients,
                                       bool /*fused*/) {
  LH_CHECK(!weights.empty() && rows.x.dim() == 2 &&
               rows.x.size(1) == weights.front().front()->slice().extent[1] &&
               offsets.numel() == static_cast<int64_t>(weights.size()) + 1,
           "grouped linear", "{} experts with {} offsets, and rows of {} features",
           weights.size(), offsets.numel(), rows.x.size(-1));
  GroupedSaved kept{weights, offsets, gradients, rows.again};
  if (!at::GradMode::is_enabled()) return columns_of(projected(rows.x, kept), kept);
  return GroupedNode::apply(rows.x, std::move(kept));
}

}  // namespace longhaul::ops
