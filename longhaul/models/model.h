#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <vector>

#include "longhaul/families/model_config.h"
#include "longhaul/nn/forward_context.h"
#include "longhaul/ops/loss_head.h"
#include "longhaul/tensor/parameter_set.h"

namespace longhaul::models {

/// One stage of a decoder: mathematics only, the same on one rank and on a thousand.
/// Parameters are those that the family describes (families/).
class Model {
 public:
  virtual ~Model() = default;

  /// In forward order, each parameter once.
  const std::vector<ParameterUnit>& units() const { return units_; }
  /// Of all units, in forward order.
  std::vector<ParameterPtr> parameters() const;

  /// Stage input -> hidden states [T, H]. With the embedding the input is token ids [T],
  /// else hidden states. With the head the final norm has been applied. Hidden states are
  /// those of this rank's part of T where context.region splits tokens.
  virtual at::Tensor hidden(const at::Tensor& input,
                            const nn::ForwardContext& context) const = 0;

  /// Hidden states of the last stage -> loss; see ops::loss_head. targets [T] int64.
  virtual ops::LossHeadResult loss(const at::Tensor& hidden, const at::Tensor& targets,
                                   const nn::ForwardContext& context,
                                   const ops::LossHeadOptions& options) const = 0;

  /// Logits of some rows of the last stage's hidden states, in the compute dtype; without
  /// grad mode. Of a split vocabulary, this rank's part of it.
  virtual at::Tensor logits(const at::Tensor& hidden) const = 0;

  /// An empty cache for `batch` sequences of up to `capacity` positions.
  virtual nn::KvCache make_cache(int64_t batch, int64_t capacity) const = 0;

  /// Moves tables that are no parameters (RoPE) to where the weights are and makes them
  /// long enough for `positions`.
  virtual void prepare(int64_t positions, at::Device device) = 0;

 private:
  friend std::unique_ptr<Model> build(const ModelConfig&, const StageSpec&);
  std::vector<ParameterUnit> units_;
};

/// Builds the stage of a model by config.model_type; an unknown family throws InputError.
std::unique_ptr<Model> build(const ModelConfig& config, const StageSpec& stage);
/// The whole model.
std::unique_ptr<Model> build(const ModelConfig& config);

}  // namespace longhaul::models
