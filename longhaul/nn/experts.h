#pragma once

#include <optional>

#include "longhaul/families/network.h"
#include "longhaul/nn/expert_projections.h"
#include "longhaul/nn/feed_forward.h"
#include "longhaul/nn/forward_context.h"
#include "longhaul/nn/linear.h"
#include "longhaul/ops/experts/routed_rows.h"

namespace longhaul::nn {

/// Computes a mixture of experts (families::Experts). Nothing is dropped: an expert has
/// as many rows as tokens chose it. Inside a SplitRegion every expert has a part of its
/// inner features, and every rank routes all tokens.
///
/// Padding (Batch::real) is routed and computed as any token. The terms of the loss and
/// the loads do not count it.
///
/// A token's weight is multiplied into the inner features of its expert, before the last
/// projection. The result is the same, and the results of experts need not be kept.
class Experts {
 public:
  Experts(tensor::ParameterSet& parameters, const families::Experts& form, int64_t layer);
  /// Maps x [T, H] to [T, H], or this rank's tokens of x to the same tokens under
  /// sequence parallelism. Collective over tp and ep.
  at::Tensor forward(const at::Tensor& x, const ForwardContext& context) const;

 private:
  /// The router's decision for all tokens of the tp group.
  struct Choice {
    ops::RoutedRows rows;
    at::Tensor weights;                ///< fp32 [R], in the order of the rows
    ExpertDispatch::CountsPtr counts;  ///< null: all experts are here
  };
  Choice choose(const at::Tensor& logits, const ForwardContext& context) const;
  at::Tensor chosen_of(const at::Tensor& probabilities,
                       const ForwardContext& context) const;
  ExpertDispatch::CountsPtr announce(const at::Tensor& chosen, int64_t experts,
                                     const RouterContext& router) const;
  at::Tensor with_losses(const at::Tensor& weights, const at::Tensor& logits,
                         const at::Tensor& probabilities, const at::Tensor& chosen,
                         const ForwardContext& context) const;
  at::Tensor balance(const at::Tensor& probabilities, const at::Tensor& chosen,
                     const ForwardContext& context) const;
  void count(const ops::RoutedRows& rows, const at::Tensor& probabilities,
             const at::Tensor& chosen, const ForwardContext& context) const;
  /// Computes the experts of this rank on their rows. Afterwards only the graph keeps the
  /// rows in memory.
  at::Tensor run(ExpertDispatch::Arrived in, const ForwardContext& context) const;

  Linear router_;
  ExpertProjections first_, last_;  ///< gate and up of each expert, and down
  std::optional<FeedForward> shared_;
  Activation activation_;
  int64_t top_k_;
  bool normalised_;
  int64_t layer_;
};

}  // namespace longhaul::nn
