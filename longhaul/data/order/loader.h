#pragma once

#include <array>
#include <cstdint>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "longhaul/data/order/phase_change.h"
#include "longhaul/data/order/phase_stream.h"
#include "longhaul/data/sources/token_source.h"

namespace longhaul::data {

/// A source and its share of the tokens, relative to the weights of the other sources.
struct WeightedSource {
  std::shared_ptr<const TokenSource> source;
  double weight = 1.0;               ///< 0: unused until a change of weights
  std::string name;                  ///< in messages, counts and the cursor
  std::optional<double> max_epochs;  ///< the most passes over the source
};

/// The weights of all sources from a step on.
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
  /// Size of the data-parallel group; global_size is a multiple of micro_size *
  /// data_size.
  int64_t data_size = 1;
  bool prefetch = true;    ///< prepare the next step on a thread of its own
  int64_t first_step = 1;  ///< the step that next() hands out first
  int64_t last_step = 0;   ///< the run's last step, for max_epochs; 0: not known
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
  /// Targets on this rank by term of the loss. Their sums over the ranks are the
  /// denominators of the step's loss.
  std::vector<int64_t> num_targets;
  /// Sum (modulo 2^64) over this rank's sequences of a hash of the place in the run, the
  /// token ids and the targets. The sum over all ranks says what the whole step saw, in
  /// any layout.
  int64_t content_hash = 0;
};

/// Returns the hash of all steps up to and including a step. `content` is the step's
/// StepBatch::content_hash summed over the ranks, `previous` the hash of the steps
/// before, 0 for the first step.
uint64_t chain_hash(uint64_t previous, int64_t content);

/// How often a source is read until the run's last step.
struct SourcePlan {
  std::string name;
  double share = 0.0;   ///< share of the tokens from the first step of this start on
  double epochs = 0.0;  ///< passes at the end of the run, earlier starts included
};

/// Hands out the steps of a run one after another, from a cursor on. One thread at a time
/// may call it; a thread of its own reads ahead.
class Loader {
 public:
  /// `start` is an earlier run's cursor, or empty. Where sources, weights, length, seed
  /// or shuffle differ from its last phase a new phase begins: a source that was seen
  /// before at the same length goes on where it stood, at another length with its next
  /// epoch. A change of weights begins a phase in the same way, so that a run that stops
  /// and goes on sees the same as a run that does not. ConfigError when the sizes do not
  /// divide, the lengths differ, a source is empty, weights cannot be mixed, or a source
  /// would be read more often than its max_epochs until the last step.
  Loader(std::vector<WeightedSource> sources, const LoaderOptions& options,
         Cursor start = {});
  ~Loader();
  Loader(const Loader&) = delete;
  Loader& operator=(const Loader&) = delete;

  /// Goes back or on to another cursor, as a new loader of the same sources would.
  void restart(const LoaderOptions& options, Cursor start);

  /// Returns the next step's batches of this rank and moves the cursor past the whole
  /// step. The result stays valid, and the caller's to alter, until the next call. Throws
  /// the errors of the reading thread.
  StepBatch& next();

  /// Returns the position after the last step that was handed out, for a checkpoint.
  const Cursor& cursor() const { return steps_[current_].cursor; }
  /// Returns why the constructor had to begin a new phase after a non-empty cursor; empty
  /// when it had not.
  const std::vector<PhaseChange>& phase_changes() const { return changes_; }

  int64_t seq_len() const { return cursor().phases.back().seq_len; }
  /// Returns the forward passes of a rank in a step.
  int64_t micro_batches() const {
    return options_.global_size / (options_.micro_size * options_.data_size);
  }
  /// Returns the sequences of all sources together, each once: the unit of run.epochs.
  int64_t sequences_per_epoch() const { return sequences_per_epoch_; }
  /// Returns the sequences of all phases of this length that were handed out, divided by
  /// sequences_per_epoch().
  double epoch() const;
  /// Returns what training has had of each source: see PhaseStream::counts.
  std::vector<SourceCount> source_counts() const {
    return steps_[current_].stream->counts(cursor().phases.back().consumed);
  }
  /// Returns how often each source is read until options.last_step; empty when that is 0.
  const std::vector<SourcePlan>& plan() const { return plan_; }

 private:
  /// A step, its phase and the run's position after it.
  struct Prepared {
    StepBatch batch;
    std::shared_ptr<PhaseStream> stream;
    Cursor cursor;
  };
  /// Reads the step after the current step into the other element of steps_.
  void prepare();
  void start_ahead();

  std::vector<WeightedSource> sources_;
  LoaderOptions options_;
  int64_t sequences_per_epoch_ = 0;
  std::vector<PhaseChange> changes_;
  std::vector<SourcePlan> plan_;
  int64_t next_step_ = 1;
  std::array<Prepared, 2> steps_;  // the step handed out, and the next step
  size_t current_ = 0;
  std::future<void> ahead_;
};

}  // namespace longhaul::data
