#include "longhaul/ops/embedding.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/sort.h>

#include <optional>

#include "longhaul/ops/common/node.h"
#include "longhaul/ops/fused/fused.h"

namespace longhaul::ops {
namespace {

/// The row of each id in this rank's slice of the table. `outside` [T] tells which ids
/// lie in other slices; it is undefined if the slice is the whole table.
struct LocalRows {
  at::Tensor rows;
  at::Tensor outside;
};

LocalRows local_rows(const at::Tensor& ids, const tensor::Parameter& table) {
  const format::TensorSlice& slice = table.slice();
  if (slice.extent[0] == slice.global_shape[0]) return {ids, {}};
  const at::Tensor rows = ids - slice.offset[0];
  return {rows, rows.lt(0).logical_or(rows.ge(slice.extent[0]))};
}

at::Tensor look_up(const at::Tensor& ids, const tensor::Parameter& table) {
  const auto [rows, outside] = local_rows(ids, table);
  if (!outside.defined()) return at::index_select(table.weight(), 0, rows);
  return at::index_select(table.weight(), 0, rows.masked_fill(outside, 0))
      .masked_fill_(outside.unsqueeze(1), 0);
}

/// Returns local_rows() for the backward, where rows without a gradient count as outside.
LocalRows trained_rows(const at::Tensor& ids, const tensor::Parameter& table) {
  LocalRows local = local_rows(ids, table);
  const auto padding = table.padding_row();
  if (!padding) return local;
  const at::Tensor pads = ids.eq(*padding);
  local.outside = local.outside.defined() ? local.outside.logical_or(pads) : pads;
  return local;
}

void composite_embedding_gradient(at::Tensor& grad, const LocalRows& trained,
                                  const at::Tensor& dy) {
  const auto& [rows, outside] = trained;
  if (!outside.defined()) {
    grad.index_add_(0, rows, dy.to(grad.scalar_type()));
    return;
  }
  if (!dy.is_cpu()) {
    // The host would have to wait for the device to learn how many of the rows lie in
    // this rank's slice. So the gradient of a row outside of the slice becomes zeros,
    // which are added to some row of the slice.
    grad.index_add_(0, rows.remainder(grad.size(0)),
                    dy.masked_fill(outside.unsqueeze(1), 0).to(grad.scalar_type()));
    return;
  }
  const at::Tensor here = outside.logical_not().nonzero().squeeze(1);
  grad.index_add_(0, at::index_select(rows, 0, here),
                  at::index_select(dy, 0, here).to(grad.scalar_type()));
}

using EmbeddingGradient =
    fused::Operation<composite_embedding_gradient, kernels::EmbeddingGradient>;

void add_gradient(const at::Tensor& ids, const at::Tensor& dy,
                  const tensor::Parameter& table) {
  at::Tensor grad = table.grad();
  const LocalRows trained = trained_rows(ids, table);
  if (!EmbeddingGradient::has_kernels(grad.scalar_type() == at::kFloat, dy)) {
    return EmbeddingGradient::composite(grad, trained, dy);
  }
  // A stable sort keeps the tokens of a row in their order, so that the sum of a row has
  // the same bits in every run. The kernel leaves out rows of -1, which lie in another
  // slice or are the padding row.
  const auto& [rows, outside] = trained;
  const auto [sorted, order] =
      at::sort(outside.defined() ? rows.masked_fill(outside, -1) : rows,
               /*stable=*/std::optional(true));
  fused::op<kernels::EmbeddingGradient>(dy.contiguous(), sorted.to(at::kLong), order,
                                        grad);
}

struct EmbeddingNode : Function<EmbeddingNode> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& /*anchor*/,
                            const at::Tensor& ids, tensor::ParameterPtr table) {
    ctx->save_for_backward({ids});
    at::Tensor y = look_up(ids, *table);
    save(ctx, std::move(table));
    return y;
  }

  static tensor_list backward(AutogradContext* ctx, tensor_list grads) {
    const tensor::ParameterPtr& table = saved<tensor::ParameterPtr>(ctx);
    if (!table->frozen()) add_gradient(ctx->get_saved_variables()[0], grads[0], *table);
    return {Variable(), Variable(), Variable()};
  }
};

}  // namespace

at::Tensor embedding(const at::Tensor& ids, const tensor::ParameterPtr& table) {
  if (!at::GradMode::is_enabled()) return look_up(ids, *table);
  const at::Tensor anchor =
      at::empty({0}, table->weight().options()).set_requires_grad(true);
  return EmbeddingNode::apply(anchor, ids, table);
}

}  // namespace longhaul::ops
