#pragma once

#include <optional>
#include <string>

#include "longhaul/models/model.h"
#include "longhaul/nn/linear.h"

namespace longhaul::models {

/// Embedding, blocks, final norm, and a head that may be the embedding, with nothing but
/// hidden states between them: a family adds its blocks and its norm.
class LanguageModel : public Model {
 public:
  nn::Tensors embed(const nn::ForwardContext& context) const final;
  nn::Tensors block(int64_t layer, const nn::Tensors& x,
                    const nn::ForwardContext& context) const final;
  nn::Tensors head(const nn::Tensors& x, const nn::ForwardContext& context) const final;
  at::Tensor loss(const nn::Tensors& hidden,
                  const nn::ForwardContext& context) const final;
  at::Tensor logits(const at::Tensor& hidden) const final;
  nn::KvCache make_cache(int64_t batch, int64_t capacity,
                         const at::TensorOptions& options) const final;

 protected:
  struct Parts {
    std::string embedding;
    std::string head;
    bool tied = false;  ///< the head is the embedding
    int64_t head_dim = 0;
    int64_t max_positions = 0;
    /// Of config.json, which says so many.
    std::string max_positions_key = "max_position_embeddings";
  };
  /// Takes the weights of the embedding and of the head that are on this stage.
  LanguageModel(Parts parts, const StageSpec& stage, ParameterSet& parameters);

  /// Hidden states [T, H], or this rank's part of T.
  virtual at::Tensor look_up(const nn::ForwardContext& context) const;
  /// The stage's block number `i`.
  virtual at::Tensor forward_block(size_t i, const at::Tensor& x,
                                   const nn::ForwardContext& context) const = 0;
  /// Key heads of the stage's block number `i` that this rank has.
  virtual int64_t key_heads(size_t i) const = 0;
  /// Before the head.
  virtual at::Tensor final_norm(const at::Tensor& x,
                                const nn::ForwardContext& context) const = 0;

  const nn::Embedding& embedding() const { return *embedding_; }
  /// Input error where the model has fewer positions.
  void check_positions(int64_t positions) const;

 private:
  const ParameterPtr& head_weight() const;

  Parts parts_;
  StageSpec stage_;
  std::optional<nn::Embedding> embedding_;
  std::optional<nn::Linear> head_;
};

}  // namespace longhaul::models
