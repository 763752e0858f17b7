#include "longhaul/ops/experts/routed_rows.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/floor_divide.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/searchsorted.h>
#include <ATen/ops/sort.h>

#include <optional>

#include "longhaul/base/error.h"
#include "longhaul/ops/node.h"

namespace longhaul::ops {
namespace {

at::Tensor rows_of_tokens(const at::Tensor& x, const RoutedRows& rows) {
  return at::index_select(x, 0, rows.token);
}

at::Tensor sums_of_rows(const at::Tensor& y, const RoutedRows& rows) {
  at::Tensor sum;
  for (int64_t i = 0; i < rows.place.size(1); ++i) {
    const at::Tensor row = at::index_select(y, 0, rows.place.select(1, i)).to(at::kFloat);
    sum = sum.defined() ? sum.add_(row) : row;
  }
  return sum.to(y.scalar_type());
}

struct GatherNode : Function<GatherNode> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x,
                            const RoutedRows& rows) {
    save(ctx, rows);
    return rows_of_tokens(x, rows);
  }
  static tensor_list backward(AutogradContext* ctx, tensor_list grads) {
    return {sums_of_rows(grads[0], saved<RoutedRows>(ctx)), Variable()};
  }
};

struct SumNode : Function<SumNode> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& y,
                            const RoutedRows& rows) {
    save(ctx, rows);
    return sums_of_rows(y, rows);
  }
  static tensor_list backward(AutogradContext* ctx, tensor_list grads) {
    return {rows_of_tokens(grads[0], saved<RoutedRows>(ctx)), Variable()};
  }
};

struct WeighNode : Function<WeighNode> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& y,
                            const at::Tensor& weights) {
    ctx->save_for_backward({y, weights});
    return (y * weights.unsqueeze(1)).to(y.scalar_type());
  }
  static tensor_list backward(AutogradContext* ctx, tensor_list grads) {
    const auto kept = ctx->get_saved_variables();
    const at::Tensor dy = grads[0].to(at::kFloat);
    return {(dy * kept[1].unsqueeze(1)).to(kept[0].scalar_type()), (dy * kept[0]).sum(1)};
  }
};

}  // namespace

RoutedRows route(const at::Tensor& chosen, int64_t experts) {
  LH_CHECK(chosen.dim() == 2 && chosen.scalar_type() == at::kLong, "routing",
           "choices of {} dims are no list of experts for each token", chosen.dim());
  const int64_t k = chosen.size(1);
  // A stable sort keeps the tokens of an expert in their order.
  const auto [sorted, order] =
      at::sort(chosen.reshape(-1), /*stable=*/std::optional(true));
  RoutedRows rows;
  rows.token = at::floor_divide(order, k);
  rows.place = at::empty_like(order);
  rows.place.scatter_(0, order, at::arange(order.size(0), order.options()));
  rows.place = rows.place.view({chosen.size(0), k});
  rows.offsets = at::searchsorted(sorted, at::arange(experts + 1, order.options()),
                                  /*out_int32=*/true);
  return rows;
}

at::Tensor gather_rows(const at::Tensor& x, const RoutedRows& rows, bool /*fused*/) {
  return GatherNode::apply(x, rows);
}

at::Tensor sum_rows(const at::Tensor& y, const RoutedRows& rows, bool /*fused*/) {
  return SumNode::apply(y, rows);
}

at::Tensor weigh_rows(const at::Tensor& y, const at::Tensor& weights, bool /*fused*/) {
  return WeighNode::apply(y, weights);
}

}  // namespace longhaul::ops
