#include "longhaul/parallel/context/attention_core.h"

#include <utility>

#include "longhaul/ops/common/node.h"
#include "longhaul/parallel/context/key_walk.h"
#include "longhaul/parallel/context/whole_keys.h"
#include "longhaul/tensor/device_limits.h"

namespace longhaul::parallel {
namespace {

using ops::AutogradContext;
using ops::tensor_list;

/// What one rank computes of an attention: its own queries against the keys of all ranks,
/// which `kind` brings to the rank by a ring or by a gather.
struct ContextTask {
  ContextKind kind;
  comm::Communicator* group;
  ops::AttentionProblem problem;
  bool fused;

  LocalAttention local(const at::Tensor& q) const {
    return {{q.size(1) * group->size(), group->size()}, group->rank(), q, problem, fused};
  }
  std::unique_ptr<KeyWalk> walk(const KeptPositions& kept) const {
    const auto make = kind == ContextKind::Ring ? ring_walk : gather_walk;
    return make(*group, each_of(kept, [](const auto& x) { return x.contiguous(); }));
  }
};

struct ContextNode : ops::Function<ContextNode> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& q,
                            at::TensorList kept, ContextTask task) {
    const LocalAttention local = task.local(q);
    AttentionSums sums = local.begin();
    const auto walk = task.walk(kept.vec());
    do {
      local.forward(walk->source(), walk->current(), sums, [&] { walk->poll(); });
    } while (walk->next());
    at::Tensor out = sums.out.to(q.scalar_type());
    tensor_list all = {q, out, sums.lse};
    all.insert(all.end(), kept.begin(), kept.end());
    ctx->save_for_backward(std::move(all));
    ops::save(ctx, std::move(task));
    return out;
  }

  static tensor_list backward(AutogradContext* ctx, tensor_list grads) {
    const auto t = ctx->get_saved_variables();
    const auto& task = ops::saved<ContextTask>(ctx);
    const LocalAttention local = task.local(t[0]);
    const at::Tensor dout = grads[0].contiguous();
    at::Tensor dq = local.begin_gradient();
    const auto walk = task.walk({t.begin() + 3, t.end()});
    do {
      const KeptPositions share = walk->share();
      local.backward(walk->source(), walk->current(), dout, t[1], t[2], dq, share,
                     [&] { walk->poll(); });
      walk->pass_on(share);
    } while (walk->next());
    const auto type = t[0].scalar_type();
    tensor_list gradients = {dq.to(type)};
    for (const at::Tensor& x : walk->total()) gradients.push_back(x.to(type));
    gradients.emplace_back();
    return gradients;
  }
};

}  // namespace

nn::AttentionCore make_attention_core(ContextKind kind, comm::Communicator& cp) {
  return [kind, &cp](const at::Tensor& q, const KeptPositions& kept,
                     const ops::AttentionProblem& problem, bool fused) -> at::Tensor {
    if (!tensor::limits_of(q.device()).writes_views) {
      return whole_keys_attention(cp, q, kept, problem, fused);
    }
    return ContextNode::apply(q, at::TensorList(kept),
                              ContextTask{kind, &cp, problem, fused});
  };
}

}  // namespace longhaul::parallel
