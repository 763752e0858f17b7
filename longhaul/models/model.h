#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <optional>
#include <vector>

#include "longhaul/families/model_config.h"
#include "longhaul/models/block.h"
#include "longhaul/models/embedding.h"
#include "longhaul/models/head.h"

namespace longhaul::models {

/// One stage of a model, for training, evaluation and generation: only the mathematics,
/// which is the same on one rank and on a thousand.
class Model {
 public:
  /// Builds the stage's part of config.network from `parameters`, the stage's parameters.
  Model(const ModelConfig& config, const StageSpec& stage,
        tensor::ParameterSet& parameters);
  virtual ~Model() = default;

  const StageSpec& stage() const { return stage_; }
  /// Returns the units of the stage in forward order, with each parameter once.
  const std::vector<tensor::ParameterUnit>& units() const { return units_; }
  /// Returns the parameters of all units in forward order.
  std::vector<tensor::ParameterPtr> parameters() const;

  // The units of the stage, which a runner calls in forward order. The tensors are the
  // tensors of ModelDescription::passed, hidden states first, each [T, width of the
  // tensor]. If context.region splits tokens, the rows are those of this rank's tokens.

  /// Returns the input of the first block for context.batch. The stage must have the
  /// embedding.
  virtual nn::Tensors embed(const nn::ForwardContext& context) const;
  /// Runs block number `layer` of the whole model, which must be one of the stage's.
  virtual nn::Tensors block(int64_t layer, const nn::Tensors& x,
                            const nn::ForwardContext& context) const;
  /// Returns what `loss` takes, made of the last block's result: hidden states after the
  /// final norm [T, H], or the results of the head's own layers. The stage must have the
  /// head.
  virtual nn::Tensors head(const nn::Tensors& x, const nn::ForwardContext& context) const;

  /// Runs all units of the stage: embed() if the stage has the embedding (`input` is
  /// then not read), every block(), and head() if the stage has the head.
  nn::Tensors hidden(const nn::Tensors& input, const nn::ForwardContext& context) const;

  /// Returns the number of terms of the loss, which the description lists.
  size_t num_losses() const { return num_losses_; }

  /// Returns the loss of context.batch.targets for the result of `head`: the root of the
  /// backward. Adds the sums of the loss's terms to context.losses.
  at::Tensor loss(const nn::Tensors& hidden, const nn::ForwardContext& context) const;

  /// Returns the rows of the result of `head` whose tokens have a target for the first
  /// term of the loss, in ascending order and equal on every tp rank. Collective over
  /// tp.
  at::Tensor target_rows(const nn::Tensors& hidden,
                         const nn::ForwardContext& context) const;

  /// Returns logits for some rows of the first result of `head`, in the compute dtype,
  /// and for this rank's part of a split vocabulary. Must be called without grad mode.
  at::Tensor logits(const at::Tensor& hidden) const;

  /// Returns an empty cache for this stage's blocks and `batch` sequences of up to
  /// `capacity` positions. `options` has the compute dtype and the device. Throws
  /// InputError for a model whose tokens see later tokens.
  nn::KvCache make_cache(int64_t batch, int64_t capacity,
                         const at::TensorOptions& options) const;

  /// Makes the tables that are no parameters (RoPE) on `device`, for this many positions.
  /// Throws an internal Error if the model has fewer positions.
  void prepare(int64_t positions, at::Device device);

 private:
  const Head& own_head() const;

  StageSpec stage_;
  int64_t max_positions_;
  std::string max_positions_key_;
  bool causal_;
  size_t num_losses_;
  std::vector<tensor::ParameterUnit> units_;
  std::optional<nn::Embedding> tokens_;
  std::optional<Embedding> embedding_;
  std::vector<Block> blocks_;
  std::unique_ptr<Head> head_;
};

/// Builds the stage of a model.
std::unique_ptr<Model> build(const ModelConfig& config, const StageSpec& stage);
/// Builds the whole model as one stage.
std::unique_ptr<Model> build(const ModelConfig& config);

/// Makes the model of these parameters, for build(). A test replaces this function.
std::unique_ptr<Model> make_model(const ModelConfig& config, const StageSpec& stage,
                                  tensor::ParameterSet& parameters);

}  // namespace longhaul::models
