#pragma once

#include <functional>

#include "longhaul/comm/communicator.h"
#include "longhaul/data/sources/token_source.h"
#include "longhaul/models/model.h"

namespace longhaul::infer {

/// Loss over a set of sequences.
struct Evaluation {
  double cross_entropy_sum = 0.0;  ///< nats
  int64_t targets = 0;
  int64_t sequences = 0;
  double loss() const;        ///< mean per target, nats
  double perplexity() const;  ///< exp(loss)
};

struct EvaluateOptions {
  int64_t max_sequences = 0;  ///< the first so many; 0: all
  int64_t micro_size = 1;     ///< sequences per forward pass
  int64_t micro_batches = 1;  ///< handed over at once
  /// Called after each call of the loss with the sequences done and to be done by this
  /// rank.
  std::function<void(int64_t done, int64_t total)> progress;
};

/// Cross-entropy summed over the targets of some micro batches; it may change them.
using LossOf = std::function<double(std::vector<data::TokenBatch>& batches)>;

/// Of a model that lies on this rank whole. model.prepare() has been called for enough
/// positions.
LossOf loss_of(const models::Model& model, at::Device device, bool fused);

/// Mean loss of the source's sequences, split over the ranks of `data`. Every rank calls
/// `loss` equally often, the last time perhaps with rows without a target, so it may be a
/// collective. Collective.
Evaluation evaluate(const LossOf& loss, const data::TokenSource& source,
                    comm::Communicator& data, const EvaluateOptions& options);

}  // namespace longhaul::infer
