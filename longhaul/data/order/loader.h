#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "longhaul/data/order/phase_change.h"
#include "longhaul/data/order/phase_stream.h"
#include "longhaul/data/sources/token_source.h"

namespace longhaul::data {

/// A source and its share of the tokens (relative to the other sources' weights).
struct WeightedSource {
  std::shared_ptr<const TokenSource> source;
  double weight = 1.0;               ///< 0: not before a change of weights says otherwise
  std::string name;                  ///< in messages, counts and the cursor
  std::optional<double> max_epochs;  ///< passes that it may be read at most
};

/// From the step on, these are the sources' weights.
struct WeightChange {
  int64_t step = 0;
  std::vector<double> weights;
};

struct LoaderOptions {
  uint64_t seed = 0;
  bool shuffle = true;
  int64_t global_size = 0;  ///< sequences per optimizer step, all ranks together
  int64_t micro_size = 0;   ///< sequences per rank and forward pass
  int64_t data_rank = 0;    ///< place in the data-parallel group
  int64_t data_size =
      1;  ///< its size; global_size is a multiple of micro_size * data_size
  bool prefetch = true;    ///< prepare the next step on a thread of its own
  int64_t first_step = 1;  ///< that next() hands out first
  int64_t last_step = 0;   ///< of the run, for max_epochs; 0: not known
  std::vector<WeightChange> changes = {};  ///< ascending in step
};

/// What one rank works on in one optimizer step.
struct StepBatch {
  /// The run's sequence count before this step.
  int64_t first_sequence = 0;
  /// global_size / (micro_size * data_size) batches of micro_size rows. Row j of micro
  /// batch m on rank d is the step's sequence (m * data_size + d) * micro_size + j: which
  /// sequences a step has does not depend on how many ranks share them.
  std::vector<TokenBatch> micro_batches;
  /// Targets on this rank by term of the loss: summed over the ranks, the denominators
  /// of the step's loss.
  std::vector<int64_t> num_targets;
  /// Sum (modulo 2^64) of one hash per sequence on this rank, over place in the run,
  /// token ids and targets. Its sum over the ranks says what the whole step saw, in any
  /// layout.
  int64_t content_hash = 0;
};

/// The hash of all steps up to and with this one: `content` is StepBatch::content_hash
/// summed over the ranks. Start from 0.
uint64_t chain_hash(uint64_t previous, int64_t content);

/// What a source is read until the run's last step.
struct SourcePlan {
  std::string name;
  double share = 0.0;   ///< of the tokens from the first step of this start on
  double epochs = 0.0;  ///< passes at the end of the run, those of earlier starts too
};

/// Hands out the steps of a run, one after another, from a cursor on. One thread at a
/// time may call it; reading ahead happens on a thread of its own.
class Loader {
 public:
  /// `start` is an earlier run's cursor, or empty. Where sources, weights, length, seed
  /// or shuffle differ from its last phase a new phase begins: a source that was seen
  /// before at the same length goes on where it stood, at another length with its next
  /// epoch. A change of weights begins a phase in the same way, so that a run that stops
  /// and goes on sees the same as one that does not. ConfigError when the sizes do not
  /// divide, the lengths differ, a source is empty, weights cannot be mixed, or a source
  /// would be read more often than its max_epochs until the last step.
  Loader(std::vector<WeightedSource> sources, const LoaderOptions& options,
         Cursor start = {});
  ~Loader();
  Loader(Loader&&) noexcept;
  Loader& operator=(Loader&&) noexcept;

  /// The next step's batches of this rank; moves the cursor past the whole step. The
  /// result stays valid, and the caller's to alter, until the next call. Errors of the
  /// reading thread come out here.
  StepBatch& next();

  /// Position after the last step handed out; what a checkpoint stores.
  const Cursor& cursor() const;
  /// Why the constructor had to begin a new phase after a non-empty cursor; empty when it
  /// had not.
  const std::vector<PhaseChange>& phase_changes() const;

  int64_t seq_len() const;
  /// Forward passes per rank and step.
  int64_t micro_batches() const;
  /// Sequences of all sources together, each once: the unit of run.epochs.
  int64_t sequences_per_epoch() const;
  /// Sequences consumed so far over sequences_per_epoch(), of all phases of this length.
  double epoch() const;
  /// Passes over each source so far, all phases of this length.
  std::vector<double> source_epochs() const;
  /// What training has had of each source: see PhaseStream::counts.
  std::vector<SourceCount> source_counts() const;
  /// Until options.last_step; empty when that is 0.
  const std::vector<SourcePlan>& plan() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace longhaul::data
