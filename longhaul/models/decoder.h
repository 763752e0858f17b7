#pragma once

#include <optional>
#include <string>
#include <vector>

#include "longhaul/families/decoder.h"
#include "longhaul/models/model.h"
#include "longhaul/nn/attention.h"
#include "longhaul/nn/feed_forward.h"

namespace longhaul::models {

/// x + attention(norm x), then x + feed_forward(norm x).
class DecoderBlock {
 public:
  DecoderBlock(ParameterSet& parameters, const DecoderSettings& settings, int64_t layer,
               const nn::AttentionParts& parts);
  /// x [T, H] -> [T, H], both of this rank's part of T.
  at::Tensor forward(const at::Tensor& x, const ops::RopeTable& rope,
                     const nn::ForwardContext& context) const;
  /// That this rank has.
  int64_t key_heads() const { return attention_.key_heads(); }

 private:
  DecoderBlock(ParameterSet& parameters, const DecoderSettings& settings, int64_t layer,
               const nn::AttentionParts& parts, const std::string& name);
  nn::RmsNorm input_norm_;
  nn::Attention attention_;
  nn::RmsNorm post_attention_norm_;
  nn::FeedForward feed_forward_;
};

/// Embedding, blocks, final norm, and a head that may be the embedding.
class Decoder : public Model {
 public:
  /// `parts`: what the family has in its attention.
  Decoder(const DecoderSettings& settings, int64_t max_positions, const StageSpec& stage,
          ParameterSet& parameters, const nn::AttentionParts& parts = {});

  nn::Tensors hidden(const nn::Tensors& input,
                     const nn::ForwardContext& context) const override;
  at::Tensor loss(const nn::Tensors& hidden,
                  const nn::ForwardContext& context) const override;
  at::Tensor logits(const at::Tensor& hidden) const override;
  nn::KvCache make_cache(int64_t batch, int64_t capacity) const override;
  void prepare(int64_t positions, at::Device device) override;

 private:
  /// The head's weight, or the embedding's where they are tied.
  const ParameterPtr& head_weight() const;

  RopeConfig rope_config_;
  int64_t head_dim_;
  int64_t max_positions_;
  int64_t first_layer_;
  std::optional<nn::Embedding> embedding_;
  std::vector<DecoderBlock> blocks_;
  std::optional<nn::RmsNorm> norm_;
  std::optional<nn::Linear> head_;
  ops::RopeTable rope_;
};

}  // namespace longhaul::models
