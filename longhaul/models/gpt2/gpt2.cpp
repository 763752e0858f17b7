#include "longhaul/models/gpt2/gpt2.h"

#include <ATen/TensorOperators.h>

#include <optional>

#include "longhaul/models/language_model.h"
#include "longhaul/nn/attention.h"
#include "longhaul/nn/feed_forward.h"

namespace longhaul::models {
namespace {

/// x + attention(norm x), then x + feed_forward(norm x).
class Gpt2Block {
 public:
  Gpt2Block(ParameterSet& parameters, const Gpt2Settings& s, int64_t layer)
      : Gpt2Block(parameters, s, layer, "transformer.h." + std::to_string(layer)) {}

  /// x [T, H] -> [T, H], both of this rank's part of T.
  at::Tensor forward(const at::Tensor& x, const nn::ForwardContext& context) const {
    const at::Tensor h = x + attention_.forward(norm_1_.forward(x), nullptr, context);
    return h + feed_forward_.forward(norm_2_.forward(h), context);
  }

  /// That this rank has.
  int64_t key_heads() const { return attention_.key_heads(); }

 private:
  Gpt2Block(ParameterSet& parameters, const Gpt2Settings& s, int64_t layer,
            const std::string& name)
      : norm_1_(parameters, name + ".ln_1", s.layer_norm_epsilon),
        attention_(parameters, name + ".attn", s.n_embd / s.n_head, layer,
                   {.bias = nn::Bias::Yes, .out_bias = nn::Bias::Yes}),
        norm_2_(parameters, name + ".ln_2", s.layer_norm_epsilon),
        feed_forward_(parameters, name + ".mlp", nn::Gelu::Tanh) {}

  nn::LayerNorm norm_1_;
  nn::Attention attention_;
  nn::LayerNorm norm_2_;
  nn::GeluFeedForward feed_forward_;
};

class Gpt2 : public LanguageModel {
 public:
  Gpt2(const ModelConfig& config, const StageSpec& stage, ParameterSet& parameters)
      : Gpt2(gpt2_settings(config), config.max_position_embeddings, stage, parameters) {}

  void prepare(int64_t positions, at::Device /*device*/) override {
    check_positions(positions);
  }

 private:
  Gpt2(const Gpt2Settings& s, int64_t max_positions, const StageSpec& stage,
       ParameterSet& parameters)
      : LanguageModel({.embedding = "transformer.wte",
                       .head = "lm_head",
                       .tied = s.tie_word_embeddings,
                       .head_dim = s.n_embd / s.n_head,
                       .max_positions = max_positions,
                       .max_positions_key = "n_positions"},
                      stage, parameters) {
    if (stage.embedding) positions_.emplace(parameters, "transformer.wpe");
    for (int64_t i = stage.first_layer; i < stage.end_layer; ++i) {
      blocks_.emplace_back(parameters, s, i);
    }
    if (stage.head) norm_.emplace(parameters, "transformer.ln_f", s.layer_norm_epsilon);
  }

  // Both tables are split by rows: one sum over the ranks is that of both.
  at::Tensor look_up(const nn::ForwardContext& context) const override {
    return context.leave(embedding().partial(context.batch.tokens) +
                         positions_->partial(context.batch.positions));
  }
  at::Tensor forward_block(size_t i, const at::Tensor& x,
                       const nn::ForwardContext& context) const override {
    return blocks_[i].forward(x, context);
  }
  int64_t key_heads(size_t i) const override { return blocks_[i].key_heads(); }
  at::Tensor final_norm(const at::Tensor& x, const nn::ForwardContext&) const override {
    return norm_->forward(x);
  }

  std::optional<nn::Embedding> positions_;
  std::vector<Gpt2Block> blocks_;
  std::optional<nn::LayerNorm> norm_;
};

}  // namespace

std::unique_ptr<Model> make_gpt2(const ModelConfig& config, const StageSpec& stage,
                                 ParameterSet& parameters) {
  return std::make_unique<Gpt2>(config, stage, parameters);
}

}  // namespace longhaul::models
