#pragma once

#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/tensor.h>

#include <memory>
#include <vector>

#include "longhaul/infer/evaluate.h"
#include "longhaul/infer/generate.h"
#include "longhaul/models/model.h"
#include "longhaul/session/batch.h"

namespace longhaul::infer::testing {

// Functions of a model that lies whole on this rank, in fp32 on the CPU. The caller has
// called model.prepare() for enough positions.

inline LossOf loss_of(const models::Model& model) {
  return [&model](std::vector<data::TokenBatch>& batches) {
    const at::NoGradGuard no_grad;
    nn::Losses losses(std::vector<double>(model.num_losses(), 1.0));
    for (data::TokenBatch& batch : batches) {
      nn::ForwardContext context;
      context.batch = session::batch_of(batch, 0, batch.num_sequences, at::kCPU);
      context.losses = &losses;
      model.loss(model.hidden({}, context), context);
    }
    return losses.sums();
  };
}

inline NextId next_id_of(const models::Model& model, const SamplingOptions& options,
                         int64_t capacity, bool fused = true) {
  const auto cache = std::make_shared<nn::KvCache>(
      model.make_cache(1, capacity, at::TensorOptions(at::kFloat)));
  return [&model, options, cache, fused](const std::vector<int64_t>& ids, int64_t step) {
    const at::NoGradGuard no_grad;
    const auto count = static_cast<int64_t>(ids.size());
    nn::ForwardContext context;
    context.batch.rows = 1;
    context.batch.seq = count;
    context.batch.tokens = at::tensor(ids, at::kInt);
    context.batch.positions = at::arange(cache->length, cache->length + count, at::kInt);
    context.fused = fused;
    context.cache = cache.get();
    const at::Tensor hidden = model.hidden({}, context)[0];
    cache->length += count;
    return sample(model.logits(hidden.narrow(0, count - 1, 1)).view({-1}), options, step);
  };
}

}  // namespace longhaul::infer::testing
