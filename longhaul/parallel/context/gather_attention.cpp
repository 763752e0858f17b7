#include "longhaul/parallel/context/gather_attention.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>

#include <utility>
#include <vector>

#include "longhaul/ops/node.h"
#include "longhaul/parallel/context/local_attention.h"
#include "longhaul/tensor/buffer_of.h"

// Shapes: N ranks, otherwise as in local_attention.h.

namespace longhaul::parallel {
namespace {

using ops::AutogradContext;
using ops::tensor_list;
using ops::Variable;

/// What one rank has of [N, B, S, Hkv, D].
KeyValues of_rank(const KeyValues& all, int rank) {
  return {all.keys.select(0, rank), all.values.select(0, rank)};
}

std::vector<int> own_first(const comm::Communicator& group) {
  std::vector<int> ranks;
  for (int i = 0; i < group.size(); ++i) {
    ranks.push_back((group.rank() + i) % group.size());
  }
  return ranks;
}

/// Every rank's keys and values, [N, B, S, Hkv, D].
KeyValues gather(comm::Communicator& group, const at::Tensor& k, const at::Tensor& v) {
  const KeyValues own{k.contiguous(), v.contiguous()};
  auto sizes = k.sizes().vec();
  sizes.insert(sizes.begin(), group.size());
  const KeyValues all{at::empty(sizes, k.options()), at::empty(sizes, v.options())};
  const auto keys = group.all_gather(buffer_of(own.keys), buffer_of(all.keys));
  const auto values = group.all_gather(buffer_of(own.values), buffer_of(all.values));
  keys->order();
  values->order();
  return all;
}

/// The sum over ranks of this rank's part of [N, B, S, Hkv, D] fp32.
KeyValues scatter_sums(comm::Communicator& group, const KeyValues& all) {
  const KeyValues mine = of_rank(all, group.rank());
  const KeyValues own{at::empty_like(mine.keys), at::empty_like(mine.values)};
  const auto keys =
      group.reduce_scatter(buffer_of(all.keys), buffer_of(own.keys), comm::ReduceOp::Sum);
  const auto values = group.reduce_scatter(buffer_of(all.values), buffer_of(own.values),
                                           comm::ReduceOp::Sum);
  keys->order();
  values->order();
  return own;
}

struct GatherTask {
  comm::Communicator* group;
  ops::AttentionMask mask;
  bool fused;

  LocalAttention local(const at::Tensor& q) const {
    return {{q.size(1) * group->size(), group->size()}, group->rank(), q, mask, fused};
  }
};

struct GatherNode : ops::Function<GatherNode> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& q,
                            const at::Tensor& k, const at::Tensor& v, GatherTask task) {
    const LocalAttention local = task.local(q);
    const KeyValues all = gather(*task.group, k, v);
    AttentionSums sums = local.begin();
    for (const int source : own_first(*task.group)) {
      local.forward(source, of_rank(all, source), sums, [] {});
    }
    at::Tensor out = sums.out.to(q.scalar_type());
    ctx->save_for_backward({q, k, v, out, sums.lse});
    ops::save(ctx, std::move(task));
    return out;
  }

  static tensor_list backward(AutogradContext* ctx, tensor_list grads) {
    const auto t = ctx->get_saved_variables();
    const auto& task = ops::saved<GatherTask>(ctx);
    const LocalAttention local = task.local(t[0]);
    const at::Tensor dout = grads[0].contiguous();
    at::Tensor dq = local.begin_gradient();
    const KeyValues all = gather(*task.group, t[1], t[2]);
    const KeyValues gradients = zero_gradients(all);
    for (const int source : own_first(*task.group)) {
      KeyValues part = of_rank(gradients, source);
      local.backward(source, of_rank(all, source), dout, t[3], t[4], dq, part, [] {});
    }
    const KeyValues total = scatter_sums(*task.group, gradients);
    const auto type = t[0].scalar_type();
    return {dq.to(type), total.keys.to(type), total.values.to(type), Variable()};
  }
};

}  // namespace

at::Tensor gather_attention(comm::Communicator& group, const at::Tensor& q,
                            const at::Tensor& k, const at::Tensor& v,
                            const ops::AttentionMask& mask, bool fused) {
  return GatherNode::apply(q, k, v, GatherTask{&group, mask, fused});
}

}  // namespace longhaul::parallel
