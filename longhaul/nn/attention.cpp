#include "longhaul/nn/attention.h"

#include "longhaul/nn/dropout.h"
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
ops::TensorFunction attention_core(const ForwardContext& context,
                                   const ops::AttentionMask& mask) {
  return [core = context.attention, mask,
          fused = context.fused](const std::vector<at::Tensor>& t) {
    const at::Tensor y = core ? core(t[0], t[1], t[2], mask, fused)
                              : ops::attention(t[0], t[1], t[2], mask, fused);
    return y.view({y.size(0) * y.size(1), -1});
  };
}

}  // namespace

Attention::Attention(ParameterSet& parameters, const std::string& name, int64_t head_dim,
                     int64_t layer, const AttentionParts& parts)
    : q_(parameters, name + ".q_proj", parts.bias),
      k_(parameters, name + ".k_proj", parts.bias),
      v_(parameters, name + ".v_proj", parts.bias),
      o_(parameters, name + ".o_proj", parts.out_bias),
      head_dim_(head_dim),
      layer_(layer),
      window_(parts.window),
      dropout_(parts.dropout) {
  if (!parts.head_norm_eps) return;
  norms_ = {parameters.take(name + ".q_norm.weight"),
            parameters.take(name + ".k_norm.weight"), *parts.head_norm_eps};
}

ops::AttentionMask Attention::mask(const ForwardContext& context) const {
  const Batch& batch = context.batch;
  ops::AttentionMask out{batch.document_start, window_, batch.document_end};
  out.dropout = dropout_draws(dropout_, layer_, DropoutSite::Attention, context);
  out.documents = batch.documents;
  out.dropout.first_head = q_.weight()->slice().offset[0] / head_dim_;
  return out;
}

ops::Heads Attention::heads(const ops::LinearInput& in, const ops::RopeTable* rope,
                            const ForwardContext& context) const {
  const at::Tensor& positions = context.batch.positions;
  const auto by_head = [&](const at::Tensor& y) {
    return y.view({y.size(0), -1, head_dim_});
  };
  const auto y = Linear::forward_all({&q_, &k_, &v_}, in, context);
  ops::Heads out{by_head(y[0]), by_head(y[1]), by_head(y[2])};
  if (norms_) out = ops::rms_norm_heads(out, *norms_, context.fused);
  if (rope == nullptr) return out;
  if (context.fused) return ops::rope_in_place(out, *rope, positions);
  return {ops::rope(out.q, *rope, positions, context.fused),
          ops::rope(out.k, *rope, positions, context.fused), out.v};
}

at::Tensor Attention::forward(const at::Tensor& x, const ops::RopeTable* rope,
                              const ForwardContext& context) const {
  const auto sequences = [&](const at::Tensor& y) {
    return y.view({context.batch.rows, context.batch.seq, -1, head_dim_});
  };
  const ops::Heads projected = heads(context.enter(x), rope, context);
  const at::Tensor q = sequences(projected.q);
  at::Tensor k = sequences(projected.k);
  at::Tensor v = sequences(projected.v);
  if (context.cache != nullptr) {
    const int64_t number = layer_ - context.cache->first_layer;
    KvCache::Layer& seen = context.cache->layers.at(static_cast<size_t>(number));
    k = append(seen.keys, k, context.cache->length);
    v = append(seen.values, v, context.cache->length);
  }
  const ops::TensorFunction core = attention_core(context, mask(context));
  return o_.forward(
      context.selective_recompute ? ops::recomputed(core, {q, k, v}) : core({q, k, v}),
      context);
}

}  // namespace longhaul::nn
