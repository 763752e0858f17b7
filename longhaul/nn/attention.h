#pragma once

#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "longhaul/families/network.h"
#include "longhaul/nn/forward_context.h"
#include "longhaul/nn/linear.h"
#include "longhaul/ops/rms_norm.h"
#include "longhaul/ops/rope.h"

namespace longhaul::nn {

/// The tables of the rotations of a model. Each table is made once.
class RopeTables {
 public:
  RopeTables(int64_t positions, at::Device device)
      : positions_(positions), device_(device) {}
  /// Returns the table of a rotation.
  std::shared_ptr<const ops::RopeTable> table(const families::Rotation& rotation);

 private:
  int64_t positions_;
  at::Device device_;
  std::vector<std::pair<families::Rotation, std::shared_ptr<const ops::RopeTable>>>
      tables_;
};

/// Grouped-query self-attention, with or without rotary positions. The attention is
/// causal if the batch has no document_end. The numbers of heads follow from the shapes
/// of the results of the projections, so that the same code serves a part of the heads.
class Attention {
 public:
  /// Takes the parameters of block number `layer`.
  Attention(tensor::ParameterSet& parameters, const families::Attention& form,
            int64_t layer);
  /// Takes the table of the rotation. Must be called before forward(), and again for more
  /// positions.
  void prepare(RopeTables& tables);
  /// Maps x [T, H] to [T, H], or this rank's tokens of x to the same tokens under
  /// sequence parallelism. Collective over tp.
  at::Tensor forward(const at::Tensor& x, const ForwardContext& context) const;
  /// Makes an empty cache for `batch` sequences of up to `capacity` positions.
  ops::KeptPositions make_cache(int64_t batch, int64_t capacity,
                                const at::TensorOptions& options) const;

 private:
  ops::AttentionProblem problem(const ForwardContext& context) const;
  /// Returns projected, normed and rotated heads: q, k and v are [T, heads, D].
  ops::Heads heads(const ops::LinearInput& in, const ForwardContext& context) const;
  ops::Heads normed(const ops::Heads& heads, const ForwardContext& context) const;

  Linear q_, k_, v_;
  OutLinear o_;
  std::optional<ops::HeadNorms> norms_;
  families::Attention form_;
  std::shared_ptr<const ops::RopeTable> rope_;  ///< null without a rotation
  int64_t layer_;
};

}  // namespace longhaul::nn
