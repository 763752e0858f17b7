#include "longhaul/nn/attention.h"

#include "longhaul/ops/attention.h"
#include "longhaul/ops/recomputed.h"

// Shapes: B sequences, S positions, T = B S, H hidden, D head dim.

namespace longhaul::nn {
namespace {

/// Appends [B, S, heads, D] to the cache; returns all positions up to now.
at::Tensor append(at::Tensor& store, const at::Tensor& fresh, int64_t length) {
  store.narrow(1, length, fresh.size(1)).copy_(fresh);
  return store.narrow(1, 0, length + fresh.size(1));
}

/// (q, k, v) -> [T, Hq D]. Holds what it needs of the context by value.
ops::TensorFunction attention_core(const ForwardContext& context) {
  return [core = context.attention, start = context.document_start,
          fused = context.fused](const std::vector<at::Tensor>& t) {
    const at::Tensor y = core ? core(t[0], t[1], t[2], start, fused)
                              : ops::attention(t[0], t[1], t[2], start, fused);
    return y.view({y.size(0) * y.size(1), -1});
  };
}

}  // namespace

Attention::Attention(ParameterSet& parameters, const std::string& name, int64_t head_dim,
                     int64_t layer)
    : q_(parameters, name + ".q_proj"),
      k_(parameters, name + ".k_proj"),
      v_(parameters, name + ".v_proj"),
      o_(parameters, name + ".o_proj"),
      head_dim_(head_dim),
      layer_(layer) {}

at::Tensor Attention::forward(const at::Tensor& x, const ops::RopeTable& rope,
                              const ForwardContext& context) const {
  const ops::LinearInput in = context.enter(x);
  const auto heads = [&](const at::Tensor& y) {
    return y.view({y.size(0), -1, head_dim_});
  };
  const auto sequences = [&](const at::Tensor& y) {
    return y.view({context.batch, context.seq, -1, head_dim_});
  };
  const at::Tensor q = sequences(
      ops::rope(heads(q_.forward(in, context)), rope, context.positions, context.fused));
  at::Tensor k = sequences(
      ops::rope(heads(k_.forward(in, context)), rope, context.positions, context.fused));
  at::Tensor v = sequences(v_.forward(in, context));
  if (context.cache != nullptr) {
    KvCache::Layer& seen = context.cache->layers.at(static_cast<size_t>(layer_));
    k = append(seen.keys, k, context.cache->length);
    v = append(seen.values, v, context.cache->length);
  }
  const ops::TensorFunction core = attention_core(context);
  return context.leave(o_.forward(
      context.selective_recompute ? ops::recomputed(core, {q, k, v}) : core({q, k, v}),
      context));
}

}  // namespace longhaul::nn
