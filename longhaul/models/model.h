#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <vector>

#include "longhaul/families/model_config.h"
#include "longhaul/nn/forward_context.h"
#include "longhaul/tensor/parameter_set.h"

namespace longhaul::models {

/// One stage of a model: mathematics only, the same on one rank and on a thousand.
/// Parameters are those that the family describes (families/).
class Model {
 public:
  virtual ~Model() = default;

  /// In forward order, each parameter once.
  const std::vector<ParameterUnit>& units() const { return units_; }
  /// Of all units, in forward order.
  std::vector<ParameterPtr> parameters() const;

  const StageSpec& stage() const { return stage_; }

  // The units of the stage, which a runner walks in forward order. Tensors are those of
  // ModelDescription::passed, hidden states first, each [T, its width]; rows are this
  // rank's part of T where context.region splits tokens.

  /// What the first block is given, of context.batch. The stage has the embedding.
  virtual nn::Tensors embed(const nn::ForwardContext& context) const = 0;
  /// Block number `layer` of the whole model, which the stage has.
  virtual nn::Tensors block(int64_t layer, const nn::Tensors& x,
                            const nn::ForwardContext& context) const = 0;
  /// What the last block gives -> what `loss` takes: hidden states after the final norm
  /// [T, H], or the results of the head's own layers. The stage has the head.
  virtual nn::Tensors head(const nn::Tensors& x,
                           const nn::ForwardContext& context) const = 0;

  /// All units of the stage, one after the other: embed(), where the stage has the
  /// embedding and `input` is not read, every block(), and head(), where it has the head.
  nn::Tensors hidden(const nn::Tensors& input, const nn::ForwardContext& context) const;

  /// Terms of the loss, as the description lists them.
  size_t num_losses() const { return num_losses_; }

  /// What `head` gives -> the loss of context.batch.targets, the root
  /// of the backward; its terms' sums are added to context.losses.
  virtual at::Tensor loss(const nn::Tensors& hidden,
                          const nn::ForwardContext& context) const = 0;

  /// Rows of what `head` gives whose tokens have a target for the
  /// first term of the loss, ascending: the same on every rank of a region. Collective
  /// there.
  virtual at::Tensor target_rows(const nn::Tensors& hidden,
                                 const nn::ForwardContext& context) const;

  /// Logits of some rows of what `head` gives first, in the compute dtype; without
  /// grad mode. Of a split vocabulary, this rank's part of it.
  virtual at::Tensor logits(const at::Tensor& hidden) const = 0;

  /// An empty cache for this stage's blocks and `batch` sequences of up to `capacity`
  /// positions; `options` are the compute dtype and the device.
  virtual nn::KvCache make_cache(int64_t batch, int64_t capacity,
                                 const at::TensorOptions& options) const = 0;

  /// Moves tables that are no parameters (RoPE) to where the weights are and makes them
  /// long enough for `positions`.
  virtual void prepare(int64_t positions, at::Device device) = 0;

 private:
  friend std::unique_ptr<Model> build(const ModelConfig&, const StageSpec&);
  StageSpec stage_;
  std::vector<ParameterUnit> units_;
  size_t num_losses_ = 0;
};

/// Builds the stage of a model by config.model_type; an unknown family throws InputError.
std::unique_ptr<Model> build(const ModelConfig& config, const StageSpec& stage);
/// The whole model.
std::unique_ptr<Model> build(const ModelConfig& config);

}  // namespace longhaul::models
