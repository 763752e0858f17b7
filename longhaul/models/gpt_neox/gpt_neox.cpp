#include "longhaul/models/gpt_neox/gpt_neox.h"

#include <ATen/TensorOperators.h>

#include <optional>

#include "longhaul/models/language_model.h"
#include "longhaul/nn/attention.h"
#include "longhaul/nn/feed_forward.h"

namespace longhaul::models {
namespace {

nn::AttentionParts attention_parts(const GptNeoxSettings& s) {
  const nn::Bias bias = s.attention_bias ? nn::Bias::Yes : nn::Bias::No;
  return {.bias = bias, .out_bias = bias};
}

/// x + attention(norm x) + feed_forward(other norm of x), or of what attention has made.
class NeoxBlock {
 public:
  NeoxBlock(ParameterSet& parameters, const GptNeoxSettings& s, int64_t layer)
      : NeoxBlock(parameters, s, layer, "gpt_neox.layers." + std::to_string(layer)) {}

  /// x [T, H] -> [T, H], both of this rank's part of T.
  at::Tensor forward(const at::Tensor& x, const ops::RopeTable& rope,
                     const nn::ForwardContext& context) const {
    const at::Tensor h = x + attention_.forward(norm_1_.forward(x), &rope, context);
    return h + feed_forward_.forward(norm_2_.forward(parallel_ ? x : h), context);
  }

  /// That this rank has.
  int64_t key_heads() const { return attention_.key_heads(); }

 private:
  NeoxBlock(ParameterSet& parameters, const GptNeoxSettings& s, int64_t layer,
            const std::string& name)
      : norm_1_(parameters, name + ".input_layernorm", s.layer_norm_eps),
        attention_(parameters, name + ".attention", s.head_dim(), layer,
                   attention_parts(s)),
        norm_2_(parameters, name + ".post_attention_layernorm", s.layer_norm_eps),
        feed_forward_(parameters, name + ".mlp",
                      s.tanh_gelu ? nn::Gelu::Tanh : nn::Gelu::Exact),
        parallel_(s.parallel_residual) {}

  nn::LayerNorm norm_1_;
  nn::Attention attention_;
  nn::LayerNorm norm_2_;
  nn::GeluFeedForward feed_forward_;
  bool parallel_;
};

class GptNeox : public LanguageModel {
 public:
  GptNeox(const ModelConfig& config, const StageSpec& stage, ParameterSet& parameters)
      : GptNeox(gpt_neox_settings(config), config.max_position_embeddings, stage,
                parameters) {}

  void prepare(int64_t positions, at::Device device) override {
    check_positions(positions);
    rope_ = ops::make_rope_table(rope_config_, rotated_, positions, device);
  }

 private:
  GptNeox(const GptNeoxSettings& s, int64_t max_positions, const StageSpec& stage,
          ParameterSet& parameters)
      : LanguageModel({.embedding = "gpt_neox.embed_in",
                       .head = "embed_out",
                       .tied = s.tie_word_embeddings,
                       .head_dim = s.head_dim(),
                       .max_positions = max_positions},
                      stage, parameters),
        rope_config_(s.rope),
        rotated_(s.rotated) {
    for (int64_t i = stage.first_layer; i < stage.end_layer; ++i) {
      blocks_.emplace_back(parameters, s, i);
    }
    if (stage.head) {
      norm_.emplace(parameters, "gpt_neox.final_layer_norm", s.layer_norm_eps);
    }
  }

  at::Tensor forward_block(size_t i, const at::Tensor& x,
                       const nn::ForwardContext& context) const override {
    return blocks_[i].forward(x, rope_, context);
  }
  int64_t key_heads(size_t i) const override { return blocks_[i].key_heads(); }
  at::Tensor final_norm(const at::Tensor& x, const nn::ForwardContext&) const override {
    return norm_->forward(x);
  }

  RopeConfig rope_config_;
  int64_t rotated_;
  std::vector<NeoxBlock> blocks_;
  std::optional<nn::LayerNorm> norm_;
  ops::RopeTable rope_;
};

}  // namespace

std::unique_ptr<Model> make_gpt_neox(const ModelConfig& config, const StageSpec& stage,
                                     ParameterSet& parameters) {
  return std::make_unique<GptNeox>(config, stage, parameters);
}

}  // namespace longhaul::models
