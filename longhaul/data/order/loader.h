#pragma once

#include <array>
#include <chrono>
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
  double weight = 1.0;  ///< 0: the source is unused until a change of weights
  std::string name;     ///< name in messages, counts and the cursor
  std::optional<double> max_epochs;  ///< the largest number of passes over the source
};

/// A change of the weights of all sources at a step.
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
  /// Size of the data-parallel group. global_size must be a multiple of micro_size *
  /// data_size.
  int64_t data_size = 1;
  bool prefetch = true;    ///< prepare the next step on a thread of its own
  int64_t first_step = 1;  ///< the step that next() hands out first
  int64_t last_step = 0;   ///< the run's last step, for max_epochs; 0: not known
  std::vector<WeightChange> changes = {};  ///< ascending in step
};

/// The batches of one rank in one optimizer step.
struct StepBatch {
  /// The run's sequence count before this step.
  int64_t first_sequence = 0;
  /// global_size / (micro_size * data_size) batches of micro_size rows. Row j of micro
  /// batch m on rank d is sequence (m * data_size + d) * micro_size + j of the step. The
  /// set of sequences in a step therefore does not depend on the number of ranks.
  std::vector<TokenBatch> micro_batches;
  /// Number of targets on this rank, by term of the loss. The sums over all ranks are the
  /// denominators of the step's loss.
  std::vector<int64_t> num_targets;
  /// Number of positions on this rank that are not padding, for terms over positions.
  int64_t num_real = 0;
  /// Sum (modulo 2^64) of one hash for each of this rank's sequences. A hash covers the
  /// sequence's position in the run, its token ids and its targets. The sum over all
  /// ranks identifies the data of the whole step and is equal in any layout.
  int64_t content_hash = 0;
};

/// Returns the hash of all steps up to and including a step. `content` is the step's
/// StepBatch::content_hash summed over the ranks. `previous` is the hash of all earlier
/// steps, and 0 for the first step.
uint64_t chain_hash(uint64_t previous, int64_t content);

/// Returns the hash of one sequence of StepBatch::content_hash: of row `row` of a batch,
/// which is sequence `sequence` of the run.
int64_t sequence_hash(const TokenBatch& batch, int64_t row, int64_t sequence);

/// Returns the cursor at which a run hands out the step `step`, if a loader of these
/// sources with these options hands out options.first_step at `start`. Reads no data.
Cursor cursor_before(const std::vector<WeightedSource>& sources,
                     const LoaderOptions& options, Cursor start, int64_t step);

/// How often a source is read until the run's last step.
struct SourcePlan {
  std::string name;
  double share = 0.0;   ///< share of the tokens that are read from options.first_step on
  double epochs = 0.0;  ///< passes at the end of the run, earlier starts included
};

/// Hands out the batches of a run step by step, beginning at a cursor. Only one thread at
/// a time may call a loader. With options.prefetch a loader reads the next step on a
/// thread of its own.
class Loader {
 public:
  /// `start` is an earlier run's cursor, or empty. A new phase begins if sources,
  /// weights, length, seed or shuffle differ from the last phase of `start`. A source
  /// that was read before at the same length goes on where it stood. At another length
  /// the source begins its next epoch. Each of options.changes begins a phase in the same
  /// way, so that a run sees the same data with and without interruptions. Throws
  /// ConfigError when the sizes do not divide, the lengths differ, a source is empty or
  /// weights cannot be mixed. Also throws ConfigError when a source would be read more
  /// often than its max_epochs until the last step.
  Loader(std::vector<WeightedSource> sources, const LoaderOptions& options,
         Cursor start = {});
  ~Loader();
  Loader(const Loader&) = delete;
  Loader& operator=(const Loader&) = delete;

  /// Continues from another cursor, as a new loader of the same sources would.
  void restart(const LoaderOptions& options, Cursor start);

  /// Waits until next() can return at once, `limit` at most. Returns whether it can. Also
  /// returns true if next() itself reads the step.
  bool ready(std::chrono::milliseconds limit) const;

  /// Returns the next step's batches of this rank and moves the cursor past the whole
  /// step. The result stays valid until the next call, and the caller may alter it.
  /// Throws the errors of the reading thread.
  StepBatch& next();

  /// Returns the position after the last step that was handed out, for a checkpoint.
  const Cursor& cursor() const { return steps_[current_].cursor; }
  /// Returns why the constructor began a new phase after a non-empty cursor; empty when
  /// the constructor began no phase.
  const std::vector<PhaseChange>& phase_changes() const { return changes_; }

  int64_t seq_len() const { return cursor().phases.back().seq_len; }
  /// Returns the number of micro batches that a rank has in a step.
  int64_t micro_batches() const {
    return options_.global_size / (options_.micro_size * options_.data_size);
  }
  /// Returns the number of sequences in all sources together, which is the unit of
  /// run.epochs.
  int64_t sequences_per_epoch() const { return cursor().phases.back().per_epoch(); }
  /// Returns how many epochs of the data training has had, by Cursor::sequences_of().
  double epoch() const;
  /// Returns how many sequences and tokens of each source training has had.
  std::vector<SourceCount> source_counts() const {
    return steps_[current_].stream->counts(cursor().phases.back().consumed);
  }
  /// Returns how often each source is read until options.last_step; empty when last_step
  /// is 0.
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
  /// Lets each source that is read in sequential order fetch its next file or shard,
  /// unless the run ends before it. `last` has the index of the last sequence that was
  /// read of each source; -1: none was read.
  void fetch_ahead(const std::vector<int64_t>& last) const;

  std::vector<WeightedSource> sources_;
  LoaderOptions options_;
  std::vector<PhaseChange> changes_;
  std::vector<SourcePlan> plan_;
  int64_t next_step_ = 1;
  std::array<Prepared, 2> steps_;  // the step handed out, and the next step
  size_t current_ = 0;
  std::future<void> ahead_;
};

}  // namespace longhaul::data
