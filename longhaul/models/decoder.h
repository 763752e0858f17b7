#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "longhaul/families/decoder.h"
#include "longhaul/models/model.h"
#include "longhaul/nn/linear.h"
#include "longhaul/ops/rope.h"

namespace longhaul::models {

/// One block of a decoder: its family's mathematics.
class DecoderBlock {
 public:
  virtual ~DecoderBlock() = default;
  /// x [T, H] -> [T, H], both of this rank's part of T.
  virtual at::Tensor forward(const at::Tensor& x, const ops::RopeTable& rope,
                             const nn::ForwardContext& context) const = 0;
  /// That this rank has.
  virtual int64_t key_heads() const = 0;
};

/// What is around the blocks: embedding, final norm, and a head that may be the
/// embedding.
class Decoder : public Model {
 public:
  using MakeBlock = std::function<std::unique_ptr<DecoderBlock>(ParameterSet& parameters,
                                                                int64_t layer)>;
  Decoder(const DecoderSettings& settings, int64_t max_positions, const StageSpec& stage,
          ParameterSet& parameters, const MakeBlock& make_block);

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

  RopeConfig rope_config_;
  int64_t head_dim_;
  int64_t max_positions_;
  int64_t first_layer_;
  std::optional<nn::Embedding> embedding_;
  std::vector<std::unique_ptr<DecoderBlock>> blocks_;
  std::optional<nn::RmsNorm> norm_;
  std::optional<nn::Linear> head_;
  ops::RopeTable rope_;
};

}  // namespace longhaul::models
