#pragma once

#include <functional>
#include <string_view>

#include "longhaul/comm/communicator.h"
#include "longhaul/data/sources/token_source.h"

namespace longhaul::infer {

/// Loss over a set of sequences that has targets for every term. Without targets a term
/// has no mean.
struct Evaluation {
  /// By term of the loss that the data has targets for.
  std::vector<double> sums;  ///< nats
  std::vector<int64_t> targets;
  int64_t sequences = 0;
  double term(size_t i) const;  ///< mean per target, nats
  double loss() const;          ///< of all terms
  double perplexity() const;    ///< exp(loss)
};

/// InputError where no sequence of those that are to be read (the first
/// `max_sequences`; 0: all) has a target for some term: the mean would be over nothing.
/// `name` is the data in the message. Reads no further than to the first targets.
void require_targets(const data::TokenSource& source, int64_t max_sequences,
                     std::string_view name);

struct EvaluateOptions {
  int64_t max_sequences = 0;  ///< the first so many; 0: all
  int64_t micro_size = 1;     ///< sequences per forward pass
  int64_t micro_batches = 1;  ///< handed over at once
  /// Called after each call of the loss with the sequences done and to be done by this
  /// rank.
  std::function<void(int64_t done, int64_t total)> progress;
};

/// Each term of the loss summed over the targets of some micro batches; it may change
/// them.
using LossOf = std::function<std::vector<double>(std::vector<data::TokenBatch>& batches)>;

/// Mean loss of the source's sequences, which have targets (require_targets), split over
/// the ranks of `data`. Every rank calls `loss` equally often, the last time perhaps with
/// rows without a target, so it may be a collective. Collective.
Evaluation evaluate(const LossOf& loss, const data::TokenSource& source,
                    comm::Communicator& data, const EvaluateOptions& options);

}  // namespace longhaul::infer
