#include "longhaul/models/gpt_neox/gpt_neox.h"

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

class GptNeox : public Model {
 public:
  GptNeox(const ModelConfig& config, const StageSpec& stage, ParameterSet& parameters)
      : settings_(gpt_neox_settings(config)),
        max_positions_(config.max_position_embeddings),
        first_layer_(stage.first_layer) {
    if (stage.embedding || (stage.head && settings_.tie_word_embeddings)) {
      embedding_.emplace(parameters, "gpt_neox.embed_in");
    }
    for (int64_t i = stage.first_layer; i < stage.end_layer; ++i) {
      blocks_.emplace_back(parameters, settings_, i);
    }
    if (!stage.head) return;
    norm_.emplace(parameters, "gpt_neox.final_layer_norm", settings_.layer_norm_eps);
    if (!settings_.tie_word_embeddings) head_.emplace(parameters, "embed_out");
  }

  nn::Tensors hidden(const nn::Tensors& input,
                     const nn::ForwardContext& context) const override {
    nn::Tensors x = run_stage(
        input, context,
        [&] { return nn::Tensors{embedding_->forward(context.batch.tokens, context)}; },
        first_layer_, blocks_.size(),
        [&](size_t i, const nn::Tensors& in) {
          return nn::Tensors{blocks_[i].forward(in[0], rope_, context)};
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
    for (const NeoxBlock& block : blocks_) heads.push_back(block.key_heads());
    return empty_cache(heads, batch, capacity, settings_.head_dim(),
                       head_weight()->weight().options());
  }

  void prepare(int64_t positions, at::Device device) override {
    LH_CHECK(positions <= max_positions_, "model",
             "{} positions asked for, the model has {} (max_position_embeddings)",
             positions, max_positions_);
    rope_ = ops::make_rope_table(settings_.rope, settings_.rotated, positions, device);
  }

 private:
  const ParameterPtr& head_weight() const {
    LH_ASSERT(norm_.has_value(), "this stage has no head");
    return head_ ? head_->weight() : embedding_->weight();
  }

  GptNeoxSettings settings_;
  int64_t max_positions_;
  int64_t first_layer_;
  std::optional<nn::Embedding> embedding_;
  std::vector<NeoxBlock> blocks_;
  std::optional<nn::LayerNorm> norm_;
  std::optional<nn::Linear> head_;
  ops::RopeTable rope_;
};

}  // namespace

std::unique_ptr<Model> make_gpt_neox(const ModelConfig& config, const StageSpec& stage,
                                     ParameterSet& parameters) {
  return std::make_unique<GptNeox>(config, stage, parameters);
}

}  // namespace longhaul::models
