#include "longhaul/nn/attention.h"

#include <ATen/ops/zeros.h>

#include "longhaul/base/error.h"
#include "longhaul/nn/dropout.h"
#include "longhaul/ops/attention/attention.h"
#include "longhaul/ops/recomputed.h"
#include "longhaul/ops/wide_norm.h"

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

std::shared_ptr<const ops::RopeTable> RopeTables::table(
    const families::Rotation& rotation) {
  for (const auto& [known, table] : tables_) {
    if (known == rotation) return table;
  }
  tables_.emplace_back(rotation,
                       std::make_shared<ops::RopeTable>(ops::make_rope_table(
                           rotation.rope, rotation.features, positions_, device_)));
  return tables_.back().second;
}

Attention::Attention(tensor::ParameterSet& parameters, const families::Attention& form,
                     int64_t layer)
    : q_(parameters, form.query),
      k_(parameters, form.key),
      v_(parameters, form.value),
      o_(parameters, form.out),
      norms_over_all_heads_(form.norms_over_all_heads),
      scale_(form.scale),
      rotation_(form.rotation),
      head_dim_(form.head_dim),
      layer_(layer),
      window_(form.window.value_or(ops::kNoWindow)),
      dropout_(form.dropout) {
  if (!form.query_norm) return;
  LH_ASSERT(
      !form.norms_over_all_heads || form.query_norm->form == RmsForm::WeightBeforeCast,
      "norms over all heads are built with the weight before the cast alone");
  norms_ = {parameters.take(form.query_norm->name + ".weight"),
            parameters.take(form.key_norm->name + ".weight"), form.query_norm->eps,
            form.query_norm->form};
}

void Attention::prepare(RopeTables& tables) {
  if (rotation_) rope_ = tables.table(*rotation_);
}

KvCache::Layer Attention::make_cache(int64_t batch, int64_t capacity,
                                     const at::TensorOptions& options) const {
  const int64_t key_heads = k_.weight()->slice().extent[0] / head_dim_;
  const auto store = [&] {
    return at::zeros({batch, capacity, key_heads, head_dim_}, options);
  };
  return {store(), store()};
}

ops::AttentionMask Attention::mask(const ForwardContext& context) const {
  const Batch& batch = context.batch;
  ops::AttentionMask out{batch.document_start, window_, batch.document_end};
  out.scale = scale_;
  out.dropout = dropout_draws(dropout_, layer_, DropoutSite::Attention, context);
  out.documents = batch.documents;
  out.dropout.first_head = q_.weight()->slice().offset[0] / head_dim_;
  return out;
}

ops::Heads Attention::normed(const ops::Heads& heads,
                             const ForwardContext& context) const {
  if (!norms_over_all_heads_) return ops::rms_norm_heads(heads, *norms_, context.fused);
  ops::WideNorms norms{norms_->q, norms_->k, norms_->eps};
  if (context.region != nullptr) {
    norms.combine = [region = context.region](at::Tensor& sums) {
      region->sum_features(sums);
    };
  }
  return ops::wide_norm_heads(heads, norms);
}

ops::Heads Attention::heads(const ops::LinearInput& in,
                            const ForwardContext& context) const {
  const at::Tensor& positions = context.batch.positions;
  const auto by_head = [&](const at::Tensor& y) {
    return y.view({y.size(0), -1, head_dim_});
  };
  const auto y = Linear::forward_all({&q_, &k_, &v_}, in, context);
  ops::Heads out{by_head(y[0]), by_head(y[1]), by_head(y[2])};
  if (norms_) out = normed(out, context);
  if (rope_ == nullptr) return out;
  if (context.fused) return ops::rope_in_place(out, *rope_, positions);
  return {ops::rope(out.q, *rope_, positions, context.fused),
          ops::rope(out.k, *rope_, positions, context.fused), out.v};
}

at::Tensor Attention::forward(const at::Tensor& x, const ForwardContext& context) const {
  const auto sequences = [&](const at::Tensor& y) {
    return y.view({context.batch.rows, context.batch.seq, -1, head_dim_});
  };
  const ops::Heads projected = heads(context.enter(x), context);
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
