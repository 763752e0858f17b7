#pragma once

#include <ATen/core/Tensor.h>

#include <memory>

#include "longhaul/families/model_config.h"
#include "longhaul/models/source/layers.h"

namespace longhaul::models {

/// Evaluates a model straight from its files. The certificate compares a loaded model
/// with this evaluation. The evaluation consists of plain tensor functions in fp32 on the
/// host. The evaluation reads the network (families/network.h), and shares no layer, no
/// op and no buffer with the model that trains: code of its own takes stored tensors
/// apart, transposes and rotates.
class SourceModel {
 public:
  /// Makes the evaluation of the model that `config` describes. `files` must outlive the
  /// model. `compute` is the dtype of the model that trains, to which a scale of the
  /// embedding may be rounded.
  SourceModel(const ModelConfig& config, const SourceFiles& files, at::ScalarType compute)
      : network_(config.network), files_(files), compute_(compute) {}

  /// Returns the embedding's result for ids and positions [T] int64: [T, H]. Collective.
  at::Tensor embed(const at::Tensor& ids, const at::Tensor& positions) const;
  /// Returns the result of block `number` for B sequences of T tokens, one after the
  /// other: x [B T, H] -> [B T, H]. Causality and windows of attention are those of the
  /// network. The rotations take `positions` [T] int64. Collective.
  /// `known` may hold the experts of the last sequence's tokens. The token of this number
  /// in every sequence takes them if rounding may have led to them. Otherwise a token
  /// takes the experts that its logits choose.
  at::Tensor layer(int64_t number, const at::Tensor& x, const at::Tensor& positions,
                   const KnownChoice& known = {}) const;
  /// Returns the logits of the head: x [R, H] -> [R, V]. Collective.
  at::Tensor logits(const at::Tensor& x) const;

 private:
  families::Network network_;
  const SourceFiles& files_;
  at::ScalarType compute_;
};

/// Makes the evaluation for the certificate. Returns null for a family that has none.
std::unique_ptr<SourceModel> make_source_model(const ModelConfig& config,
                                               const SourceFiles& files,
                                               at::ScalarType compute);

}  // namespace longhaul::models
