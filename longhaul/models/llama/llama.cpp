#include "longhaul/models/llama/llama.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/zeros.h>

#include "longhaul/base/error.h"
#include "longhaul/nn/loss_head.h"

namespace longhaul::models {
namespace {

std::string layer_name(int64_t layer) { return "model.layers." + std::to_string(layer); }

nn::AttentionSizes attention_sizes(const ModelConfig& c) {
  return {c.hidden_size, c.num_attention_heads, c.num_key_value_heads, c.head_dim,
          c.initializer_range};
}

}  // namespace

LlamaBlock::LlamaBlock(const ModelConfig& config, int64_t layer)
    : input_norm_(layer_name(layer) + ".input_layernorm", config.hidden_size,
                  config.rms_norm_eps),
      attention_(layer_name(layer) + ".self_attn", attention_sizes(config), layer),
      post_attention_norm_(layer_name(layer) + ".post_attention_layernorm",
                           config.hidden_size, config.rms_norm_eps),
      feed_forward_(layer_name(layer) + ".mlp", config.hidden_size,
                    config.intermediate_size, config.initializer_range) {}

at::Tensor LlamaBlock::forward(const at::Tensor& x, const ops::RopeTable& rope,
                               const nn::ForwardContext& context) const {
  const at::Tensor h =
      x + attention_.forward(input_norm_.forward(x, context), rope, context);
  return h + feed_forward_.forward(post_attention_norm_.forward(h, context), context);
}

std::vector<ParameterPtr> LlamaBlock::parameters() const {
  std::vector<ParameterPtr> out = {input_norm_.weight()};
  for (const ParameterPtr& p : attention_.parameters()) out.push_back(p);
  out.push_back(post_attention_norm_.weight());
  for (const ParameterPtr& p : feed_forward_.parameters()) out.push_back(p);
  return out;
}

Llama::Llama(const ModelConfig& config, const StageSpec& stage)
    : config_(config), stage_(stage) {
  if (stage.embedding || (stage.head && config.tie_word_embeddings)) {
    embedding_.emplace("model.embed_tokens", config.vocab_size, config.hidden_size,
                       config.initializer_range);
  }
  for (int64_t i = stage.first_layer; i < stage.end_layer; ++i) {
    blocks_.emplace_back(config, i);
  }
  if (!stage.head) return;
  norm_.emplace("model.norm", config.hidden_size, config.rms_norm_eps);
  if (!config.tie_word_embeddings) {
    head_.emplace("lm_head", config.hidden_size, config.vocab_size,
                  config.initializer_range);
  }
}

std::vector<ModelUnit> Llama::units() const {
  using Kind = ModelUnit::Kind;
  std::vector<ModelUnit> all;
  if (stage_.embedding) all.push_back({Kind::Embedding, 0, {embedding_->weight()}});
  for (size_t i = 0; i < blocks_.size(); ++i) {
    all.push_back({Kind::Block, stage_.first_layer + static_cast<int64_t>(i),
                   blocks_[i].parameters()});
  }
  if (!norm_) return all;
  ModelUnit head{Kind::Head, 0, {norm_->weight()}};
  if (head_) {
    head.parameters.push_back(head_->weight());
  } else if (!stage_.embedding) {
    head.parameters.push_back(embedding_->weight());  // tied, on another stage too
  }
  all.push_back(std::move(head));
  return all;
}

at::Tensor Llama::hidden(const at::Tensor& input,
                         const nn::ForwardContext& context) const {
  at::Tensor x = input;
  if (!input.is_floating_point()) {
    const auto embed = [&](const at::Tensor& ids) {
      return embedding_->forward(ids, context);
    };
    x = context.run_block ? context.run_block(nn::kEmbeddingLayer, embed, input)
                          : embed(input);
  }
  for (size_t i = 0; i < blocks_.size(); ++i) {
    const auto run = [&, i](const at::Tensor& in) {
      return blocks_[i].forward(in, rope_, context);
    };
    x = context.run_block
            ? context.run_block(stage_.first_layer + static_cast<int64_t>(i), run, x)
            : run(x);
  }
  return norm_ ? norm_->forward(x, context) : x;
}

ops::LossHeadResult Llama::loss(const at::Tensor& hidden, const at::Tensor& targets,
                                const nn::ForwardContext& context,
                                const ops::LossHeadOptions& options) const {
  return nn::loss_head(hidden, head_weight(), targets, context, options);
}

at::Tensor Llama::logits(const at::Tensor& hidden) const {
  return at::linear(hidden, head_weight()->weight());
}

nn::KvCache Llama::make_cache(int64_t batch, int64_t capacity) const {
  nn::KvCache cache;
  const auto options = head_weight()->weight().options();
  for (const LlamaBlock& block : blocks_) {
    const auto store = [&] {
      return at::zeros({batch, capacity, block.attention().key_heads(), config_.head_dim},
                       options);
    };
    cache.layers.push_back({store(), store()});
  }
  return cache;
}

void Llama::prepare(int64_t positions, at::Device device) {
  LH_CHECK(positions <= config_.max_position_embeddings, "model",
           "{} positions asked for, the model has {} (max_position_embeddings)",
           positions, config_.max_position_embeddings);
  rope_ = ops::make_rope_table(config_.rope, config_.head_dim, positions, device);
}

const ParameterPtr& Llama::head_weight() const {
  LH_ASSERT(norm_.has_value(), "this stage has no head");
  return head_ ? head_->weight() : embedding_->weight();
}

}  // namespace longhaul::models
