#include "longhaul/ops/experts/routed_rows.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/floor_divide.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/searchsorted.h>
#include <ATen/ops/sort.h>

#include <optional>

#include "longhaul/base/error.h"
#include "longhaul/ops/common/node.h"
#include "longhaul/ops/fused/fused.h"

namespace longhaul::ops {
namespace {

/// The routed rows, and whether kernels move the rows on a device that has such kernels.
struct RowsMoved {
  RoutedRows rows;
  bool fused;
};

void composite_rows(const at::Tensor& x, const at::Tensor& row, at::Tensor y) {
  at::index_select_out(y, x, 0, row);
}

at::Tensor composite_sums(const at::Tensor& y, const at::Tensor& place) {
  at::Tensor sum;
  for (int64_t i = 0; i < place.size(1); ++i) {
    const at::Tensor row = at::index_select(y, 0, place.select(1, i)).to(at::kFloat);
    sum = sum.defined() ? sum.add_(row) : row;
  }
  return sum.to(y.scalar_type());
}

using GatherRows = fused::Operation<composite_rows, kernels::GatherRows>;
using SumRows = fused::Operation<composite_sums, kernels::SumRows>;

/// Returns x with features that follow each other in each row, as the kernels take it.
at::Tensor whole_rows(const at::Tensor& x) {
  return x.stride(1) == 1 ? x : x.contiguous();
}

at::Tensor rows_of_tokens(const at::Tensor& x, const RowsMoved& moved) {
  const at::Tensor& token = moved.rows.token;
  at::Tensor y = at::empty({token.size(0), x.size(1)}, x.options());
  put_rows(x, token, y, moved.fused);
  return y;
}

at::Tensor sums_of_rows(const at::Tensor& y, const RowsMoved& moved) {
  return added_rows(y, moved.rows.place, moved.fused);
}

struct GatherNode : Function<GatherNode> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x,
                            const RowsMoved& moved) {
    save(ctx, moved);
    return rows_of_tokens(x, moved);
  }
  static tensor_list backward(AutogradContext* ctx, tensor_list grads) {
    return {sums_of_rows(grads[0], saved<RowsMoved>(ctx)), Variable()};
  }
};

struct SumNode : Function<SumNode> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& y,
                            const RowsMoved& moved) {
    save(ctx, moved);
    return sums_of_rows(y, moved);
  }
  static tensor_list backward(AutogradContext* ctx, tensor_list grads) {
    return {rows_of_tokens(grads[0], saved<RowsMoved>(ctx)), Variable()};
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

at::Tensor gather_rows(const at::Tensor& x, const RoutedRows& rows, bool fused) {
  return GatherNode::apply(x, RowsMoved{rows, fused});
}

at::Tensor sum_rows(const at::Tensor& y, const RoutedRows& rows, bool fused) {
  return SumNode::apply(y, RowsMoved{rows, fused});
}

void put_rows(const at::Tensor& x, const at::Tensor& row, const at::Tensor& y,
              bool fused) {
  if (!GatherRows::has_kernels(fused, x)) return GatherRows::composite(x, row, y);
  fused::op<kernels::GatherRows>(whole_rows(x), row, y);
}

at::Tensor added_rows(const at::Tensor& y, const at::Tensor& place, bool fused) {
  if (!SumRows::has_kernels(fused, y)) return SumRows::composite(y, place);
  at::Tensor sum = at::empty({place.size(0), y.size(1)}, y.options());
  fused::op<kernels::SumRows>(whole_rows(y), place, sum);
  return sum;
}

}  // namespace longhaul::ops
