#include "longhaul/models/decoder.h"

#include <ATen/TensorOperators.h>

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
  const auto [in, normed] = input_norm_.residual(x, context);
  const at::Tensor attended = attention_.forward(normed, &rope, context);
  const auto [h, h_normed] = post_attention_norm_.residual(in, context, attended);
  return h + feed_forward_.forward(h_normed, context);
}

Decoder::Decoder(const DecoderSettings& settings, int64_t max_positions,
                 const StageSpec& stage, ParameterSet& parameters,
                 const nn::AttentionParts& parts)
    : LanguageModel({.embedding = "model.embed_tokens",
                     .head = "lm_head",
                     .tied = settings.tie_word_embeddings,
                     .head_dim = settings.head_dim,
                     .max_positions = max_positions},
                    stage, parameters),
      rope_config_(settings.rope),
      head_dim_(settings.head_dim) {
  for (int64_t i = stage.first_layer; i < stage.end_layer; ++i) {
    blocks_.emplace_back(parameters, settings, i, parts);
  }
  if (stage.head) norm_.emplace(parameters, "model.norm", settings.rms_norm_eps);
}

void Decoder::prepare(int64_t positions, at::Device device) {
  check_positions(positions);
  rope_ = ops::make_rope_table(rope_config_, head_dim_, positions, device);
}

at::Tensor Decoder::forward_block(size_t i, const at::Tensor& x,
                                  const nn::ForwardContext& context) const {
  return blocks_[i].forward(x, rope_, context);
}

at::Tensor Decoder::final_norm(const at::Tensor& x,
                               const nn::ForwardContext& context) const {
  return norm_->forward(x, context);
}

}  // namespace longhaul::models
