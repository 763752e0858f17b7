#include "longhaul/parallel/tensor/region.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/amax.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/exp.h>
#include <ATen/ops/stack.h>

#include "longhaul/base/error.h"
#include "longhaul/ops/common/node.h"
#include "longhaul/tensor/buffer_of.h"
#include "longhaul/tensor/own_memory.h"

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

/// A result that the ranks are making. Its memory and that of `in` must live until
/// order() was called.
struct UnderWay {
  at::Tensor in, out;
  comm::WorkPtr work;

  /// Returns the result, behind which the caller's next work comes.
  at::Tensor order() {
    work->order();
    in.reset();
    return std::move(out);
  }
};

/// Begins to gather the rows of all ranks [T, ...] from this rank's rows [t, ...] and
/// those of the others.
UnderWay begin_gather(Communicator& tp, const at::Tensor& part) {
  const at::Tensor mine = tensor::in_own_memory(part);
  auto shape = mine.sizes().vec();
  shape[0] *= tp.size();
  const at::Tensor all = at::empty(shape, mine.options());
  return {mine, all, tp.all_gather(tensor::buffer_of(mine), tensor::buffer_of(all))};
}

at::Tensor gather_rows(Communicator& tp, const at::Tensor& part) {
  return begin_gather(tp, part).order();
}

/// Begins to make the rows [t, H] that this rank gets of the sum of [T, H] over the
/// ranks.
UnderWay begin_sum_and_scatter(Communicator& tp, const at::Tensor& partial) {
  const int64_t T = partial.size(0);
  LH_CHECK(T % tp.size() == 0, "tensor parallelism",
           "{} tokens do not split over tp = {} ranks (sequence parallelism)", T,
           tp.size());
  const at::Tensor all = tensor::in_own_memory(partial);
  const at::Tensor mine = at::empty({T / tp.size(), all.size(1)}, all.options());
  return {all, mine,
          tp.reduce_scatter(tensor::buffer_of(all), tensor::buffer_of(mine),
                            comm::ReduceOp::Sum)};
}

/// What the backward of a region's entry needs.
struct Entry {
  Communicator* tp;
  std::shared_ptr<ops::BesideSum> beside;

  /// Returns the result of the sum that has begun. The weight gradients that the region's
  /// layers have left are computed beside it: only what follows waits for the sum.
  at::Tensor end(UnderWay sum) const {
    for (const auto& gradient : std::exchange(*beside, {})) gradient();
    return sum.order();
  }
};

struct EnterNode : ops::Function<EnterNode> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x, Entry entry) {
    ops::save(ctx, std::move(entry));
    return x.detach();
  }
  static tensor_list backward(AutogradContext* ctx, tensor_list grads) {
    const auto& entry = ops::saved<Entry>(ctx);
    // Other nodes of the graph may hold this gradient, so that it is not changed in
    // place.
    const at::Tensor dx = grads[0].clone(at::MemoryFormat::Contiguous);
    comm::WorkPtr work = entry.tp->all_reduce(tensor::buffer_of(dx), comm::ReduceOp::Sum);
    return {entry.end({dx, dx, std::move(work)}), Variable()};
  }
};

struct LeaveNode : ops::Function<LeaveNode> {
  static at::Tensor forward(AutogradContext* /*ctx*/, const at::Tensor& partial,
                            Communicator* tp) {
    at::Tensor y = tensor::in_own_memory(partial.detach());
    sum(*tp, y);
    return y;
  }
  static tensor_list backward(AutogradContext* /*ctx*/, tensor_list grads) {
    return {grads[0], Variable()};
  }
};

struct GatherNode : ops::Function<GatherNode> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x, Entry entry) {
    at::Tensor all = gather_rows(*entry.tp, x);
    ops::save(ctx, std::move(entry));
    return all;
  }
  static tensor_list backward(AutogradContext* ctx, tensor_list grads) {
    const auto& entry = ops::saved<Entry>(ctx);
    return {entry.end(begin_sum_and_scatter(*entry.tp, grads[0])), Variable()};
  }
};

struct ScatterNode : ops::Function<ScatterNode> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& partial,
                            Communicator* tp) {
    ops::save(ctx, tp);
    return begin_sum_and_scatter(*tp, partial).order();
  }
  static tensor_list backward(AutogradContext* ctx, tensor_list grads) {
    return {gather_rows(*ops::saved<Communicator*>(ctx), grads[0]), Variable()};
  }
};

/// All rows of an input, gathered again from the rows of this rank.
class GatheredRows : public ops::SavedInput {
 public:
  GatheredRows(Communicator& tp, at::Tensor part) : tp_(tp), part_(std::move(part)) {}

  void begin() override {
    if (!part_.defined()) return;  // begun before
    gather_ = begin_gather(tp_, std::exchange(part_, {}));
  }

 protected:
  at::Tensor make() override {
    begin();
    return gather_.order();
  }

 private:
  Communicator& tp_;
  at::Tensor part_;
  UnderWay gather_;
};

}  // namespace

at::Tensor TensorRegion::outside(const at::Tensor& rows) const {
  const int64_t count = rows.size(0) / token_parts();
  return rows.narrow(0, sequence_ ? tp_.rank() * count : 0, count);
}

ops::LinearInput TensorRegion::enter(const at::Tensor& x) const {
  if (!at::GradMode::is_enabled()) return sequence_ ? gather_rows(tp_, x) : x.detach();
  const auto beside = std::make_shared<ops::BesideSum>();
  const Entry entry{&tp_, beside};
  if (!sequence_) return {EnterNode::apply(x, entry), nullptr, beside};
  return {GatherNode::apply(x, entry), std::make_shared<GatheredRows>(tp_, x.detach()),
          beside};
}

at::Tensor TensorRegion::leave(const at::Tensor& partial) const {
  return sequence_ ? ScatterNode::apply(partial, &tp_) : LeaveNode::apply(partial, &tp_);
}

void TensorRegion::combine_loss(at::Tensor& lse, at::Tensor& picked) const {
  // The gathered tensor has the shape [ranks, 2, R].
  const at::Tensor all = gather_rows(tp_, at::stack({lse, picked}).unsqueeze(0));
  const auto part = [&](int64_t rank) { return all.select(0, rank).select(0, 0); };
  const at::Tensor most = at::amax(all.select(1, 0), {0});
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
