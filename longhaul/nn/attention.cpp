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
  q_norm_.emplace(parameters, name + ".q_norm", *parts.head_norm_eps);
  k_norm_.emplace(parameters, name + ".k_norm", *parts.head_norm_eps);
}

ops::AttentionMask Attention::mask(const ForwardContext& context) const {
  const Batch& batch = context.batch;
  ops::AttentionMask out{batch.document_start, window_, batch.document_end};
  out.dropout = dropout_draws(dropout_, layer_, DropoutSite::Attention, context);
  out.documents = batch.documents;
  out.dropout.first_head = q_.weight()->slice().offset[0] / head_dim_;
  return out;
}

at::Tensor Attention::forward(const at::Tensor& x, const ops::RopeTable* rope,
                              const ForwardContext& context) const {
  const ops::LinearInput in = context.enter(x);
  const auto heads = [&](const at::Tensor& y) {
    return y.view({y.size(0), -1, head_dim_});
  };
  const auto sequences = [&](const at::Tensor& y) {
    return y.view({context.batch.rows, context.batch.seq, -1, head_dim_});
  };
  const auto rotated = [&](const Linear& projection, const std::optional<RmsNorm>& norm) {
    at::Tensor y = heads(projection.forward(in, context));
    if (norm) y = norm->forward(y, context);
    if (rope == nullptr) return sequences(y);
    return sequences(ops::rope(y, *rope, context.batch.positions, context.fused));
  };
  const at::Tensor q = rotated(q_, q_norm_);
  at::Tensor k = rotated(k_, k_norm_);
  at::Tensor v = sequences(v_.forward(in, context));
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
