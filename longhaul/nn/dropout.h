#pragma once

#include "longhaul/nn/forward_context.h"

namespace longhaul::nn {

/// Where in a layer something is dropped; the numbers are part of the draws.
enum class DropoutSite {
  Embedding = 0,
  Attention = 1,     ///< its probabilities
  AttentionOut = 2,  ///< the result of its last projection
  FeedForward = 3,   ///< its result
};

/// The number of the embedding, which is no layer, in its draws.
inline constexpr int64_t kNoLayer = -1;

/// What to drop at a place: rows are those of Batch::sequences. Nothing where the context
/// has no key (evaluation) or the probability is 0. Error: there is a key, but the batch
/// does not number its sequences.
ops::Dropout dropout_draws(double probability, int64_t layer, DropoutSite site,
                           const ForwardContext& context);

/// Drops elements of x [T, H], or of this rank's part of T (SplitRegion).
at::Tensor dropout(const at::Tensor& x, double probability, int64_t layer,
                   DropoutSite site, const ForwardContext& context);

}  // namespace longhaul::nn
