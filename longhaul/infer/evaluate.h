#pragma once

#include <functional>

#include "longhaul/comm/communicator.h"
#include "longhaul/data/token_source.h"
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
  bool fused = true;
  at::Device device = at::kCPU;
  /// Called after each forward pass with the sequences done and to be done by this rank.
  std::function<void(int64_t done, int64_t total)> progress;
};

/// Mean loss of the source's sequences, split over the ranks of `data`. Collective.
/// model.prepare() has been called for at least source.seq_len() positions.
Evaluation evaluate(const models::Model& model, const data::TokenSource& source,
                    comm::Communicator& data, const EvaluateOptions& options);

}  // namespace longhaul::infer
