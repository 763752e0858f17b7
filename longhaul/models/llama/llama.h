#pragma once

#include <optional>

#include "longhaul/families/llama/llama.h"
#include "longhaul/models/model.h"
#include "longhaul/nn/attention.h"
#include "longhaul/nn/feed_forward.h"
#include "longhaul/nn/linear.h"

namespace longhaul::models {

/// x + attention(norm x), then x + feed_forward(norm x).
class LlamaBlock {
 public:
  LlamaBlock(ParameterSet& parameters, const LlamaSettings& settings, int64_t layer);
  at::Tensor forward(const at::Tensor& x, const ops::RopeTable& rope,
                     const nn::ForwardContext& context) const;
  const nn::Attention& attention() const { return attention_; }

 private:
  nn::RmsNorm input_norm_;
  nn::Attention attention_;
  nn::RmsNorm post_attention_norm_;
  nn::FeedForward feed_forward_;
};

/// Llama 2, 3 and 3.1 (Touvron et al. 2023; Grattafiori et al. 2024).
class Llama : public Model {
 public:
  Llama(const ModelConfig& config, const StageSpec& stage, ParameterSet& parameters);

  at::Tensor hidden(const at::Tensor& input,
                    const nn::ForwardContext& context) const override;
  ops::LossHeadResult loss(const at::Tensor& hidden, const at::Tensor& targets,
                           const nn::ForwardContext& context,
                           const ops::LossHeadOptions& options) const override;
  at::Tensor logits(const at::Tensor& hidden) const override;
  nn::KvCache make_cache(int64_t batch, int64_t capacity) const override;
  void prepare(int64_t positions, at::Device device) override;

 private:
  /// The head's weight, or the embedding's where they are tied.
  const ParameterPtr& head_weight() const;

  LlamaSettings settings_;
  int64_t max_positions_;
  int64_t first_layer_;
  std::optional<nn::Embedding> embedding_;
  std::vector<LlamaBlock> blocks_;
  std::optional<nn::RmsNorm> norm_;
  std::optional<nn::Linear> head_;
  ops::RopeTable rope_;
};

}  // namespace longhaul::models
