#include "longhaul/parallel/context/attention_core.h"

#include <utility>

#include "longhaul/ops/common/node.h"
#include "longhaul/parallel/context/key_walk.h"

namespace longhaul::parallel {
namespace {

using ops::AutogradContext;
using ops::tensor_list;
using ops::Variable;

/// What one rank computes of an attention: its own queries against the keys of all ranks,
/// which come to it as `kind` says.
struct ContextTask {
  ContextKind kind;
  comm::Communicator* group;
  ops::AttentionMask mask;
  bool fused;

  LocalAttention local(const at::Tensor& q) const {
    return {{q.size(1) * group->size(), group->size()}, group->rank(), q, mask, fused};
  }
  std::unique_ptr<KeyWalk> walk(const at::Tensor& k, const at::Tensor& v) const {
    const auto make = kind == ContextKind::Ring ? ring_walk : gather_walk;
    return make(*group, {k.contiguous(), v.contiguous()});
  }
};

struct ContextNode : ops::Function<ContextNode> {
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& q,
                            const at::Tensor& k, const at::Tensor& v, ContextTask task) {
    const LocalAttention local = task.local(q);
    AttentionSums sums = local.begin();
    const auto walk = task.walk(k, v);
    do {
      local.forward(walk->source(), walk->current(), sums, [&] { walk->poll(); });
    } while (walk->next());
    at::Tensor out = sums.out.to(q.scalar_type());
    ctx->save_for_backward({q, k, v, out, sums.lse});
    ops::save(ctx, std::move(task));
    return out;
  }

  static tensor_list backward(AutogradContext* ctx, tensor_list grads) {
    const auto t = ctx->get_saved_variables();
    const auto& task = ops::saved<ContextTask>(ctx);
    const LocalAttention local = task.local(t[0]);
    const at::Tensor dout = grads[0].contiguous();
    at::Tensor dq = local.begin_gradient();
    const auto walk = task.walk(t[1], t[2]);
    do {
      KeyValues share = walk->share();
      local.backward(walk->source(), walk->current(), dout, t[3], t[4], dq, share,
                     [&] { walk->poll(); });
      walk->pass_on(share);
    } while (walk->next());
    const KeyValues total = walk->total();
    const auto type = t[0].scalar_type();
    return {dq.to(type), total.keys.to(type), total.values.to(type), Variable()};
  }
};

}  // namespace

nn::AttentionCore make_attention_core(ContextKind kind, comm::Communicator& cp) {
  return [kind, &cp](const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                     const ops::AttentionMask& mask, bool fused) -> at::Tensor {
    return ContextNode::apply(q, k, v, ContextTask{kind, &cp, mask, fused});
  };
}

}  // namespace longhaul::parallel
