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

/// One stage of a model: mathematics only, the same on one rank and on a thousand.
class Model {
 public:
  /// Builds what config.network has of the stage; `parameters` are those that the
  /// description has of it.
  Model(const ModelConfig& config, const StageSpec& stage, ParameterSet& parameters);
  virtual ~Model() = default;

  const StageSpec& stage() const { return stage_; }
  /// In forward order, each parameter once.
  const std::vector<ParameterUnit>& units() const { return units_; }
  /// Of all units, in forward order.
  std::vector<ParameterPtr> parameters() const;

  // The units of the stage, which a runner walks in forward order. Tensors are those of
  // ModelDescription::passed, hidden states first, each [T, its width]; rows are this
  // rank's part of T where context.region splits tokens.

  /// What the first block is given, of context.batch. The stage has the embedding.
  virtual nn::Tensors embed(const nn::ForwardContext& context) const;
  /// Block number `layer` of the whole model, which the stage has.
  virtual nn::Tensors block(int64_t layer, const nn::Tensors& x,
                            const nn::ForwardContext& context) const;
  /// What the last block gives -> what `loss` takes: hidden states after the final norm
  /// [T, H], or the results of the head's own layers. The stage has the head.
  virtual nn::Tensors head(const nn::Tensors& x, const nn::ForwardContext& context) const;

  /// All units of the stage, one after the other: embed(), where the stage has the
  /// embedding and `input` is not read, every block(), and head(), where it has the head.
  nn::Tensors hidden(const nn::Tensors& input, const nn::ForwardContext& context) const;

  /// Terms of the loss, as the description lists them.
  size_t num_losses() const { return num_losses_; }

  /// What `head` gives -> the loss of context.batch.targets, the root of the backward;
  /// its terms' sums are added to context.losses.
  at::Tensor loss(const nn::Tensors& hidden, const nn::ForwardContext& context) const;

  /// Rows of what `head` gives whose tokens have a target for the first term of the loss,
  /// ascending: the same on every rank of a region. Collective there.
  at::Tensor target_rows(const nn::Tensors& hidden,
                         const nn::ForwardContext& context) const;

  /// Logits of some rows of what `head` gives first, in the compute dtype; without grad
  /// mode. Of a split vocabulary, this rank's part of it.
  at::Tensor logits(const at::Tensor& hidden) const;

  /// An empty cache for this stage's blocks and `batch` sequences of up to `capacity`
  /// positions; `options` are the compute dtype and the device. InputError for a model
  /// whose tokens see what follows them.
  nn::KvCache make_cache(int64_t batch, int64_t capacity,
                         const at::TensorOptions& options) const;

  /// Moves tables that are no parameters (RoPE) to where the weights are and makes them
  /// long enough for `positions`. InputError where the model has fewer positions.
  void prepare(int64_t positions, at::Device device);

 private:
  const Head& own_head() const;

  StageSpec stage_;
  int64_t max_positions_;
  std::string max_positions_key_;
  bool causal_;
  size_t num_losses_;
  std::vector<ParameterUnit> units_;
  std::optional<nn::Embedding> tokens_;
  std::optional<Embedding> embedding_;
  std::vector<Block> blocks_;
  std::unique_ptr<Head> head_;
};

/// Builds the stage of a model.
std::unique_ptr<Model> build(const ModelConfig& config, const StageSpec& stage);
/// The whole model.
std::unique_ptr<Model> build(const ModelConfig& config);

/// Makes the model whose parameters these are: for build().
std::unique_ptr<Model> make_model(const ModelConfig& config, const StageSpec& stage,
                                  ParameterSet& parameters);

}  // namespace longhaul::models
