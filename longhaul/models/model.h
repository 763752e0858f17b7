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

  /// What the stage before hands on -> what this one does, each [T, its width]: hidden
  /// states first. A stage with the embedding is given nothing and reads context.batch.
  /// With the head the final norm has been applied. Rows are this rank's part of T where
  /// context.region splits tokens; a head with layers of its own (nn::kHeadLayer) gives
  /// what its `loss` takes.
  virtual nn::Tensors hidden(const nn::Tensors& input,
                             const nn::ForwardContext& context) const = 0;

  /// Terms of the loss, as the description lists them.
  size_t num_losses() const { return num_losses_; }

  /// What the last stage's `hidden` gives -> the loss of context.batch.targets, the root
  /// of the backward; its terms' sums are added to context.losses.
  virtual at::Tensor loss(const nn::Tensors& hidden,
                          const nn::ForwardContext& context) const = 0;

  /// Rows of what the last stage's `hidden` gives whose tokens have a target for the
  /// first term of the loss, ascending: the same on every rank of a region. Collective
  /// there.
  virtual at::Tensor target_rows(const nn::Tensors& hidden,
                                 const nn::ForwardContext& context) const;

  /// Logits of some rows of the last stage's hidden states, in the compute dtype; without
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
  std::vector<ParameterUnit> units_;
  size_t num_losses_ = 0;
};

/// Builds the stage of a model by config.model_type; an unknown family throws InputError.
std::unique_ptr<Model> build(const ModelConfig& config, const StageSpec& stage);
/// The whole model.
std::unique_ptr<Model> build(const ModelConfig& config);

}  // namespace longhaul::models
