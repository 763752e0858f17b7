#pragma once

#include <optional>
#include <string>
#include <vector>

#include "longhaul/families/decoder.h"
#include "longhaul/models/language_model.h"
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

/// Llama's form of a language model.
class Decoder : public LanguageModel {
 public:
  /// `parts`: what the family has in its attention.
  Decoder(const DecoderSettings& settings, int64_t max_positions, const StageSpec& stage,
          ParameterSet& parameters, const nn::AttentionParts& parts = {});

  void prepare(int64_t positions, at::Device device) override;

 private:
  at::Tensor forward_block(size_t i, const at::Tensor& x,
                           const nn::ForwardContext& context) const override;
  int64_t key_heads(size_t i) const override { return blocks_[i].key_heads(); }
  at::Tensor final_norm(const at::Tensor& x,
                        const nn::ForwardContext& context) const override;

  RopeConfig rope_config_;
  int64_t head_dim_;
  std::vector<DecoderBlock> blocks_;
  std::optional<nn::RmsNorm> norm_;
  ops::RopeTable rope_;
};

}  // namespace longhaul::models
