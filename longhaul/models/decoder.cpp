#include "longhaul/models/decoder.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/linear.h>

#include "longhaul/base/error.h"
#include "longhaul/models/stage.h"
#include "longhaul/nn/loss_head.h"

namespace longhaul::models {

DecoderBlock::DecoderBlock(ParameterSet& parameters, const DecoderSettings& settings,
                           int64_t layer, const nn::AttentionParts& parts)
    : DecoderBlock(parameters, settings, layer, parts,
                   "model.layers." + std::to_string(layer)) {}

DecoderBlock::DecoderBlock(ParameterSet& parameters, const DecoderSettings& s,
                           int64_t layer, const nn::AttentionParts& parts,
                           const std::string& name)
    : input_norm_(parameters, name + ".input_layernorm", s.rms_norm_eps),
      attention_(parameters, name + ".self_attn", s.head_dim, layer, parts),
      post_attention_norm_(parameters, name + ".post_attention_layernorm",
                           s.rms_norm_eps),
      feed_forward_(parameters, name + ".mlp") {}

at::Tensor DecoderBlock::forward(const at::Tensor& x, const ops::RopeTable& rope,
                                 const nn::ForwardContext& context) const {
  const at::Tensor h =
      x + attention_.forward(input_norm_.forward(x, context), &rope, context);
  return h + feed_forward_.forward(post_attention_norm_.forward(h, context), context);
}

Decoder::Decoder(const DecoderSettings& settings, int64_t max_positions,
                 const StageSpec& stage, ParameterSet& parameters,
                 const nn::AttentionParts& parts)
    : rope_config_(settings.rope),
      head_dim_(settings.head_dim),
      max_positions_(max_positions),
      first_layer_(stage.first_layer) {
  if (stage.embedding || (stage.head && settings.tie_word_embeddings)) {
    embedding_.emplace(parameters, "model.embed_tokens");
  }
  for (int64_t i = stage.first_layer; i < stage.end_layer; ++i) {
    blocks_.emplace_back(parameters, settings, i, parts);
  }
  if (!stage.head) return;
  norm_.emplace(parameters, "model.norm", settings.rms_norm_eps);
  if (!settings.tie_word_embeddings) head_.emplace(parameters, "lm_head");
}

nn::Tensors Decoder::hidden(const nn::Tensors& input,
                            const nn::ForwardContext& context) const {
  nn::Tensors x = run_stage(
      input, context,
      [&] { return nn::Tensors{embedding_->forward(context.batch.tokens, context)}; },
      first_layer_, blocks_.size(),
      [&](size_t i, const nn::Tensors& in) {
        return nn::Tensors{blocks_[i].forward(in[0], rope_, context)};
      });
  if (norm_) x[0] = norm_->forward(x[0], context);
  return x;
}

at::Tensor Decoder::loss(const nn::Tensors& hidden,
                         const nn::ForwardContext& context) const {
  return nn::loss_head(hidden[0], head_weight(), 0, context);
}

at::Tensor Decoder::logits(const at::Tensor& hidden) const {
  return at::linear(hidden, head_weight()->weight());
}

nn::KvCache Decoder::make_cache(int64_t batch, int64_t capacity) const {
  std::vector<int64_t> heads;
  for (const DecoderBlock& block : blocks_) heads.push_back(block.key_heads());
  return empty_cache(heads, batch, capacity, head_dim_,
                     head_weight()->weight().options());
}

void Decoder::prepare(int64_t positions, at::Device device) {
  LH_CHECK(positions <= max_positions_, "model",
           "{} positions asked for, the model has {} (max_position_embeddings)",
           positions, max_positions_);
  rope_ = ops::make_rope_table(rope_config_, head_dim_, positions, device);
}

const ParameterPtr& Decoder::head_weight() const {
  LH_ASSERT(norm_.has_value(), "this stage has no head");
  return head_ ? head_->weight() : embedding_->weight();
}

}  // namespace longhaul::models
