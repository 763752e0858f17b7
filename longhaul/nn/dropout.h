#pragma once

#include "longhaul/nn/forward_context.h"

namespace longhaul::nn {

/// The points in a layer at which elements are dropped. A point's value is part of the
/// key of the random numbers that are drawn there.
enum class DropoutSite {
  Embedding = 0,
  Attention = 1,     ///< the probabilities of attention
  AttentionOut = 2,  ///< the result of the last projection of attention
  FeedForward = 3,   ///< the result of the feed-forward
  Adapter = 4,       ///< the input of a low-rank part, whose key has its name
};

/// Stands for the number of the layer in draws of the embedding, which is no layer.
inline constexpr int64_t kNoLayer = -1;

/// Returns which elements are dropped at a site, for the rows of Batch::sequences.
/// Nothing is dropped if the context has no key (evaluation) or the probability is 0.
/// Throws an Error if there is a key, but the batch does not number its sequences.
ops::Dropout dropout_draws(double probability, int64_t layer, DropoutSite site,
                           const ForwardContext& context);

/// Returns x [T, H], or this rank's tokens of x, with elements dropped.
at::Tensor dropout(const at::Tensor& x, double probability, int64_t layer,
                   DropoutSite site, const ForwardContext& context);

}  // namespace longhaul::nn
