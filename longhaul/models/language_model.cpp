#include "longhaul/models/language_model.h"

#include <ATen/ops/zeros.h>

#include <utility>

#include "longhaul/base/error.h"
#include "longhaul/nn/loss_head.h"
#include "longhaul/ops/products.h"

namespace longhaul::models {

LanguageModel::LanguageModel(Parts parts, const StageSpec& stage,
                             ParameterSet& parameters)
    : parts_(std::move(parts)), stage_(stage) {
  if (stage.embedding || (stage.head && parts_.tied)) {
    embedding_.emplace(parameters, parts_.embedding);
  }
  if (stage.head && !parts_.tied) head_.emplace(parameters, parts_.head);
}

nn::Tensors LanguageModel::embed(const nn::ForwardContext& context) const {
  return {look_up(context)};
}

nn::Tensors LanguageModel::block(int64_t layer, const nn::Tensors& x,
                                 const nn::ForwardContext& context) const {
  return {forward_block(static_cast<size_t>(layer - stage_.first_layer), x[0], context)};
}

nn::Tensors LanguageModel::head(const nn::Tensors& x,
                                const nn::ForwardContext& context) const {
  return {final_norm(x[0], context)};
}

at::Tensor LanguageModel::loss(const nn::Tensors& hidden,
                               const nn::ForwardContext& context) const {
  return nn::loss_head(hidden[0], head_weight(), 0, context);
}

at::Tensor LanguageModel::logits(const at::Tensor& hidden) const {
  return ops::linear_product(hidden, head_weight()->weight());
}

nn::KvCache LanguageModel::make_cache(int64_t batch, int64_t capacity,
                                      const at::TensorOptions& options) const {
  nn::KvCache cache;
  cache.first_layer = stage_.first_layer;
  for (int64_t i = 0; i < stage_.end_layer - stage_.first_layer; ++i) {
    const auto store = [&] {
      return at::zeros(
          {batch, capacity, key_heads(static_cast<size_t>(i)), parts_.head_dim}, options);
    };
    cache.layers.push_back({store(), store()});
  }
  return cache;
}

at::Tensor LanguageModel::look_up(const nn::ForwardContext& context) const {
  return embedding_->forward(context.batch.tokens, context);
}

void LanguageModel::check_positions(int64_t positions) const {
  LH_CHECK(positions <= parts_.max_positions, "model",
           "{} positions asked for, the model has {} ({})", positions,
           parts_.max_positions, parts_.max_positions_key);
}

const ParameterPtr& LanguageModel::head_weight() const {
  LH_ASSERT(stage_.head, "this stage has no head");
  return head_ ? head_->weight() : embedding_->weight();
}

}  // namespace longhaul::models
