#include "longhaul/nn/attention.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>

#include "longhaul/base/error.h"
#include "longhaul/nn/dropout.h"
#include "longhaul/ops/attention/attention.h"
#include "longhaul/ops/recomputed.h"
#include "longhaul/ops/wide_norm.h"
#include "longhaul/tensor/device_limits.h"

// Shapes: B sequences, S positions, T = B S, H hidden, D head dim.

namespace longhaul::nn {
namespace {

/// Returns a function that maps q and the tensors that attention keeps of positions, such
/// as keys and values, to the result of attention, [T, Hq D]. The function has copies of
/// what it needs of the context.
ops::TensorFunction attention_core(const ForwardContext& context,
                                   const ops::AttentionProblem& problem) {
  AttentionCore core = context.attention ? context.attention : ops::attention;
  return [core = std::move(core), problem,
          fused = context.fused](const std::vector<at::Tensor>& t) {
    const at::Tensor y = core(t[0], {t.begin() + 1, t.end()}, problem, fused);
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
      form_(form),
      layer_(layer) {
  if (!form.query_norm) return;
  LH_ASSERT(
      !form.norms_over_all_heads || form.query_norm->form == RmsForm::WeightBeforeCast,
      "norms over all heads are built with the weight before the cast alone");
  norms_ = {parameters.take(form.query_norm->name + ".weight"),
            parameters.take(form.key_norm->name + ".weight"), form.query_norm->eps,
            form.query_norm->form};
}

void Attention::prepare(RopeTables& tables) {
  if (form_.rotation) rope_ = tables.table(*form_.rotation);
}

namespace {

/// Returns the store [B, capacity, ...] with the rows x [B, n, ...] from `length` on, for
/// devices that write into no part of a tensor. One row has the same operations at every
/// length.
at::Tensor with_rows(const at::Tensor& store, const at::Tensor& x, int64_t length) {
  const int64_t n = x.size(1), behind = store.size(1) - length - n;
  if (n > 1) {
    return at::cat({store.narrow(1, 0, length), x, store.narrow(1, length + n, behind)},
                   1);
  }
  const at::Tensor place =
      at::arange(store.size(1), at::TensorOptions(at::kInt).device(store.device()));
  return at::where((place == length).view({1, -1, 1, 1}), x, store);
}

}  // namespace

ops::KeptPositions KvCache::append(int64_t layer, const ops::KeptPositions& fresh) {
  auto store = layers.at(static_cast<size_t>(layer - first_layer)).begin();
  return ops::each_of(fresh, [&](const at::Tensor& x) {
    if (!tensor::limits_of(x.device()).writes_views) {
      *store = with_rows(*store, x, length);
      return *store++;
    }
    store->narrow(1, length, x.size(1)).copy_(x);
    return (store++)->narrow(1, 0, length + x.size(1));
  });
}

ops::KeptPositions Attention::make_cache(int64_t batch, int64_t capacity,
                                         const at::TensorOptions& options) const {
  const int64_t key_heads = k_.weight()->slice().extent[0] / form_.head_dim;
  const auto store = [&] {
    return at::zeros({batch, capacity, key_heads, form_.head_dim}, options);
  };
  return {store(), store()};
}

ops::AttentionProblem Attention::problem(const ForwardContext& context) const {
  const Batch& batch = context.batch;
  ops::AttentionProblem out{
      form_, batch.document_start, batch.document_end, batch.documents,
      dropout_draws(form_.dropout, layer_, DropoutSite::Attention, context)};
  out.dropout.first_head = q_.weight()->slice().offset[0] / form_.head_dim;
  return out;
}

ops::Heads Attention::normed(const ops::Heads& heads,
                             const ForwardContext& context) const {
  if (!form_.norms_over_all_heads)
    return ops::rms_norm_heads(heads, *norms_, context.fused);
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
    return y.view({y.size(0), -1, form_.head_dim});
  };
  const auto y = Linear::forward_all({&q_, &k_, &v_}, in, context);
  ops::Heads out{by_head(y[0]), by_head(y[1]), by_head(y[2])};
  if (norms_) out = normed(out, context);
  if (rope_ == nullptr) return out;
  const bool in_place = tensor::limits_of(out.q.device()).writes_views;
  if (context.fused && in_place) return ops::rope_in_place(out, *rope_, positions);
  return {ops::rope(out.q, *rope_, positions, context.fused),
          ops::rope(out.k, *rope_, positions, context.fused), out.v};
}

at::Tensor Attention::forward(const at::Tensor& x, const ForwardContext& context) const {
  const auto sequences = [&](const at::Tensor& y) {
    return y.view({context.batch.rows, context.batch.seq, -1, form_.head_dim});
  };
  const ops::Heads projected = heads(context.enter(x), context);
  ops::KeptPositions inputs{sequences(projected.k), sequences(projected.v)};
  ops::AttentionProblem of_call = problem(context);
  if (context.cache != nullptr) {
    inputs = context.cache->append(layer_, inputs);
    // On some devices the keys are the whole cache (append()).
    of_call.query_begin = context.cache->length;
  }
  inputs.insert(inputs.begin(), sequences(projected.q));
  const ops::TensorFunction core = attention_core(context, of_call);
  return o_.forward(
      context.selective_recompute ? ops::recomputed(core, inputs) : core(inputs),
      context);
}

}  // namespace longhaul::nn
