#include "longhaul/nn/dropout.h"

#include <fmt/format.h>

#include "longhaul/base/error.h"
#include "longhaul/base/random.h"
#include "longhaul/ops/dropout.h"

namespace longhaul::nn {

ops::Dropout dropout_draws(double probability, int64_t layer, DropoutSite site,
                           const ForwardContext& context) {
  ops::Dropout draws;
  if (!context.dropout_key || probability == 0.0) return draws;
  const Batch& batch = context.batch;
  LH_CHECK(batch.sequences.defined() && batch.sequences.size(0) == batch.rows, "dropout",
           "a probability of {}, but no numbers of the batch's {} sequences", probability,
           batch.rows);
  draws.probability = probability;
  draws.key = random_key(*context.dropout_key,
                         fmt::format("layer {} site {}", layer, static_cast<int>(site)));
  draws.sequences = batch.sequences;
  return draws;
}

at::Tensor dropout(const at::Tensor& x, double probability, int64_t layer,
                   DropoutSite site, const ForwardContext& context) {
  ops::Dropout draws = dropout_draws(probability, layer, site, context);
  if (!draws.drops()) return x;
  const Batch& batch = context.batch;
  LH_CHECK(batch.index.defined() && batch.sequence_of.defined(), "dropout",
           "a probability of {}, but no index of each token in its sequence",
           probability);
  draws.sequences = context.outside(batch.sequence_of);
  draws.index = context.outside(batch.index);
  return ops::dropout(x, draws, context.fused);
}

}  // namespace longhaul::nn
