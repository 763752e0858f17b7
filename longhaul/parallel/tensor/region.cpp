#include "longhaul/parallel/tensor/region.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/exp.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/stack.h>

#include "longhaul/base/error.h"
#include "longhaul/ops/common/node.h"
#include "longhaul/tensor/buffer_of.h"

// Shapes: T tokens, t = T / ranks, H features, R rows of a chunk.

namespace longhaul::parallel {
namespace {

using comm::Communicator;
using ops::AutogradContext;
using ops::tensor_list;
using ops::Variable;

/// Adds up x over the ranks, in place. Collective.
void sum(Communicator& tp, const at::Tensor& x) {
  tp.all_reduce_order(tensor::buffer_of(x), comm::ReduceOp::Sum);
}

/// Returns the rows of all ranks [T, ...], gathered from this rank's rows [t, ...] and
/// those of the others.
at::Tensor gather_rows(Communicator& tp, const at::Tensor& part) {
  const at::Tensor mine = part.contiguous();
  auto shape = mine.sizes().vec();
  shape[0] *= tp.size();
  at::Tensor all = at::empty(shape, mine.options());
  tp.all_gather(tensor::buffer_of(mine), tensor::buffer_of(all))->order();
  return all;
}

/// Returns the rows [t, H] that this rank gets of the sum of [T, H] over the ranks.
at::Tensor sum_and_scatter(Communicator& tp, const at::Tensor& partial) {
  const int64_t T = partial.size(0);
  LH_CHECK(T % tp.size() == 0, "tensor parallelism",
           "{} tokens do not split over tp = {} ranks (sequence parallelism)", T,
           tp.size());
  const at::Tensor all = partial.contiguous();
  at::Tensor mine = at::empty({T / tp.size(), all.size(1)}, all.options());
  tp.reduce_scatter(tensor::buffer_of(all), tensor::buffer_of(mine), comm::ReduceOp::Sum)
      ->order();
  return mine;
}

struct EnterNode : ops::Function<EnterNode> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x, Communicator* tp) {
    ops::save(ctx, tp);
    return x.detach();
  }
  static tensor_list backward(AutogradContext* ctx, tensor_list grads) {
    // Other nodes of the graph may hold this gradient, so that it is not changed in
    // place.
    at::Tensor dx = grads[0].clone(at::MemoryFormat::Contiguous);
    sum(*ops::saved<Communicator*>(ctx), dx);
    return {dx, Variable()};
  }
};

struct LeaveNode : ops::Function<LeaveNode> {
  static at::Tensor forward(AutogradContext* /*ctx*/, const at::Tensor& partial,
                            Communicator* tp) {
    at::Tensor y = partial.detach().contiguous();
    sum(*tp, y);
    return y;
  }
  static tensor_list backward(AutogradContext* /*ctx*/, tensor_list grads) {
    return {grads[0], Variable()};
  }
};

struct GatherNode : ops::Function<GatherNode> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x, Communicator* tp) {
    ops::save(ctx, tp);
    return gather_rows(*tp, x);
  }
  static tensor_list backward(AutogradContext* ctx, tensor_list grads) {
    return {sum_and_scatter(*ops::saved<Communicator*>(ctx), grads[0]), Variable()};
  }
};

struct ScatterNode : ops::Function<ScatterNode> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& partial,
                            Communicator* tp) {
    ops::save(ctx, tp);
    return sum_and_scatter(*tp, partial);
  }
  static tensor_list backward(AutogradContext* ctx, tensor_list grads) {
    return {gather_rows(*ops::saved<Communicator*>(ctx), grads[0]), Variable()};
  }
};

/// All rows of an input, gathered again from the rows of this rank.
class GatheredRows : public ops::SavedInput {
 public:
  GatheredRows(Communicator& tp, at::Tensor part) : tp_(tp), part_(std::move(part)) {}

 protected:
  at::Tensor make() override {
    at::Tensor all = gather_rows(tp_, part_);
    part_.reset();  // made once
    return all;
  }

 private:
  Communicator& tp_;
  at::Tensor part_;
};

}  // namespace

at::Tensor TensorRegion::outside(const at::Tensor& rows) const {
  const int64_t count = rows.size(0) / token_parts();
  return rows.narrow(0, sequence_ ? tp_.rank() * count : 0, count);
}

ops::LinearInput TensorRegion::enter(const at::Tensor& x) const {
  if (!sequence_) return EnterNode::apply(x, &tp_);
  at::Tensor all = GatherNode::apply(x, &tp_);
  if (!at::GradMode::is_enabled()) return all;
  return {all, std::make_shared<GatheredRows>(tp_, x.detach())};
}

at::Tensor TensorRegion::leave(const at::Tensor& partial) const {
  return sequence_ ? ScatterNode::apply(partial, &tp_) : LeaveNode::apply(partial, &tp_);
}

void TensorRegion::combine_loss(at::Tensor& lse, at::Tensor& picked) const {
  // The gathered tensor has the shape [ranks, 2, R].
  const at::Tensor all = gather_rows(tp_, at::stack({lse, picked}).unsqueeze(0));
  const auto part = [&](int64_t rank) { return all.select(0, rank).select(0, 0); };
  at::Tensor most = part(0);
  for (int64_t r = 1; r < ranks(); ++r) most = at::maximum(most, part(r));
  lse.zero_();
  picked.zero_();
  for (int64_t r = 0; r < ranks(); ++r) {
    lse.add_(at::exp(part(r) - most));
    picked.add_(all.select(0, r).select(0, 1));
  }
  lse.log_().add_(most);
}

void TensorRegion::sum_features(at::Tensor& sums) const {
  LH_ASSERT(sums.scalar_type() == at::kFloat && sums.is_contiguous(),
            "sums of features that are not contiguous fp32");
  sum(tp_, sums);
}

}  // namespace longhaul::parallel
