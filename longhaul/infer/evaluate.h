#pragma once

#include <functional>
#include <string_view>

#include "longhaul/comm/communicator.h"
#include "longhaul/data/sources/token_source.h"

namespace longhaul::infer {

/// The loss over a set of sequences. Each term of the loss has at least one target.
struct Evaluation {
  /// One for each term of the loss that has targets, nats; then what else LossOf returns.
  std::vector<double> sums;
  std::vector<int64_t> targets;  ///< number of targets of each term
  int64_t sequences = 0;
  double term(size_t i) const;  ///< mean of term i per target, nats
  double loss() const;          ///< sum of all terms
  double perplexity() const;    ///< exp(loss)
};

/// Throws InputError where none of the first `max_sequences` sequences (0: all) has a
/// target for some term, since the mean would be over nothing. `name` names the data in
/// the message. Reads only until every term has a target.
void require_targets(const data::TokenSource& source, int64_t max_sequences,
                     std::string_view name);

struct EvaluateOptions {
  int64_t max_sequences = 0;  ///< only this many of the first sequences; 0: all
  int64_t micro_size = 1;     ///< sequences of a micro batch
  int64_t micro_batches = 1;  ///< micro batches of one call of the loss
  /// Every micro batch has micro_size rows; those that lack a sequence have no targets.
  bool full = false;
  /// Is called after each call of the loss with the number of this rank's micro batches
  /// that are done, and the number of all its micro batches.
  std::function<void(int64_t done, int64_t total)> progress;
};

/// A function that returns each term of the loss, summed over the targets of some micro
/// batches, and perhaps other sums behind the terms with targets. The function may change
/// the batches.
using LossOf = std::function<std::vector<double>(std::vector<data::TokenBatch>& batches)>;

/// Returns the loss of the source's sequences, which are split over the ranks of `data`
/// and must have targets (require_targets). Every rank calls `loss` equally often, the
/// last time perhaps with rows without a target, so that `loss` may be a collective.
/// Collective.
Evaluation evaluate(const LossOf& loss, const data::TokenSource& source,
                    comm::Communicator& data, const EvaluateOptions& options);

}  // namespace longhaul::infer
