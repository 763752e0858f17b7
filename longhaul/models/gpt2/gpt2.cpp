#include "longhaul/models/gpt2/gpt2.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/linear.h>

#include <optional>

#include "longhaul/base/error.h"
#include "longhaul/models/stage.h"
#include "longhaul/nn/attention.h"
#include "longhaul/nn/feed_forward.h"
#include "longhaul/nn/loss_head.h"

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

class Gpt2 : public Model {
 public:
  Gpt2(const ModelConfig& config, const StageSpec& stage, ParameterSet& parameters)
      : settings_(gpt2_settings(config)),
        max_positions_(config.max_position_embeddings),
        first_layer_(stage.first_layer) {
    if (stage.embedding || (stage.head && settings_.tie_word_embeddings)) {
      tokens_.emplace(parameters, "transformer.wte");
    }
    if (stage.embedding) positions_.emplace(parameters, "transformer.wpe");
    for (int64_t i = stage.first_layer; i < stage.end_layer; ++i) {
      blocks_.emplace_back(parameters, settings_, i);
    }
    if (!stage.head) return;
    norm_.emplace(parameters, "transformer.ln_f", settings_.layer_norm_epsilon);
    if (!settings_.tie_word_embeddings) head_.emplace(parameters, "lm_head");
  }

  nn::Tensors hidden(const nn::Tensors& input,
                     const nn::ForwardContext& context) const override {
    // Both tables are split by rows: one sum over the ranks is that of both.
    const auto embed = [&] {
      return nn::Tensors{context.leave(tokens_->partial(context.batch.tokens) +
                                       positions_->partial(context.batch.positions))};
    };
    nn::Tensors x = run_stage(input, context, embed, first_layer_, blocks_.size(),
                              [&](size_t i, const nn::Tensors& in) {
                                return nn::Tensors{blocks_[i].forward(in[0], context)};
                              });
    if (norm_) x[0] = norm_->forward(x[0]);
    return x;
  }

  at::Tensor loss(const nn::Tensors& hidden,
                  const nn::ForwardContext& context) const override {
    return nn::loss_head(hidden[0], head_weight(), 0, context);
  }

  at::Tensor logits(const at::Tensor& hidden) const override {
    return at::linear(hidden, head_weight()->weight());
  }

  nn::KvCache make_cache(int64_t batch, int64_t capacity) const override {
    std::vector<int64_t> heads;
    for (const Gpt2Block& block : blocks_) heads.push_back(block.key_heads());
    return empty_cache(heads, batch, capacity, settings_.n_embd / settings_.n_head,
                       head_weight()->weight().options());
  }

  void prepare(int64_t positions, at::Device /*device*/) override {
    LH_CHECK(positions <= max_positions_, "model",
             "{} positions asked for, the model has {} (n_positions)", positions,
             max_positions_);
  }

 private:
  const ParameterPtr& head_weight() const {
    LH_ASSERT(norm_.has_value(), "this stage has no head");
    return head_ ? head_->weight() : tokens_->weight();
  }

  Gpt2Settings settings_;
  int64_t max_positions_;
  int64_t first_layer_;
  std::optional<nn::Embedding> tokens_;
  std::optional<nn::Embedding> positions_;
  std::vector<Gpt2Block> blocks_;
  std::optional<nn::LayerNorm> norm_;
  std::optional<nn::Linear> head_;
};

}  // namespace

std::unique_ptr<Model> make_gpt2(const ModelConfig& config, const StageSpec& stage,
                                 ParameterSet& parameters) {
  return std::make_unique<Gpt2>(config, stage, parameters);
}

}  // namespace longhaul::models
