#include "longhaul/models/qwen/qwen.h"

#include <ATen/TensorOperators.h>

#include "longhaul/models/decoder.h"
#include "longhaul/nn/attention.h"
#include "longhaul/nn/feed_forward.h"

namespace longhaul::models {
namespace {

nn::AttentionParts parts_of(const QwenSettings& s) {
  nn::AttentionParts parts;
  if (s.biases) parts.bias = nn::Bias::Yes;
  if (s.head_norms) parts.head_norm_eps = s.rms_norm_eps;
  return parts;
}

/// x + attention(norm x), then x + feed_forward(norm x).
class QwenBlock : public DecoderBlock {
 public:
  QwenBlock(ParameterSet& parameters, const QwenSettings& s, int64_t layer)
      : QwenBlock(parameters, s, layer, "model.layers." + std::to_string(layer)) {}

  at::Tensor forward(const at::Tensor& x, const ops::RopeTable& rope,
                     const nn::ForwardContext& context) const override {
    const at::Tensor h =
        x + attention_.forward(input_norm_.forward(x, context), rope, context);
    return h + feed_forward_.forward(post_attention_norm_.forward(h, context), context);
  }
  int64_t key_heads() const override { return attention_.key_heads(); }

 private:
  QwenBlock(ParameterSet& parameters, const QwenSettings& s, int64_t layer,
            const std::string& name)
      : input_norm_(parameters, name + ".input_layernorm", s.rms_norm_eps),
        attention_(parameters, name + ".self_attn", s.head_dim, layer, parts_of(s)),
        post_attention_norm_(parameters, name + ".post_attention_layernorm",
                             s.rms_norm_eps),
        feed_forward_(parameters, name + ".mlp") {}

  nn::RmsNorm input_norm_;
  nn::Attention attention_;
  nn::RmsNorm post_attention_norm_;
  nn::FeedForward feed_forward_;
};

}  // namespace

std::unique_ptr<Model> make_qwen(const ModelConfig& config, const StageSpec& stage,
                                 ParameterSet& parameters) {
  const QwenSettings& settings = qwen_settings(config);
  return std::make_unique<Decoder>(settings, config.max_position_embeddings, stage,
                                   parameters, [&](ParameterSet& from, int64_t layer) {
                                     return std::make_unique<QwenBlock>(from, settings,
                                                                        layer);
                                   });
}

}  // namespace longhaul::models
