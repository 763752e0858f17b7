#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "longhaul/run/events.h"
#include "longhaul/system/stopwatch.h"
#include "longhaul/train/history/history.h"
#include "longhaul/train/start/training_session.h"

namespace longhaul::train {

/// Ends a run by run.until or run.budget: rank 0 measures the steps of this start and
/// asks decide_end() (history/end_rule.h) after each. Does nothing where neither is set.
class RunEnd {
 public:
  /// Makes the object, for which rank 0 reads from the run's directory what the run has
  /// cost so far and how long its saves took. The start's event, which tells the nodes,
  /// must be written before. Collective.
  explicit RunEnd(const TrainingSession& session);

  /// Takes a step that is done, with all that belongs to it. If it is decided now where
  /// the run ends, notes that in the history on every rank, and returns what was decided.
  /// `most` is the last step by the settings. `save_seconds` is the longest save of this
  /// start, and `validation_seconds` its newest validation. Collective.
  std::optional<run::EndDecidedEvent> look(const TrainingSession& session,
                                           History& history, int64_t most,
                                           double save_seconds,
                                           double validation_seconds);

 private:
  void read_past();
  double seconds_left() const;
  void note_step(int64_t decay);

  RunSection settings_;
  double spent_node_seconds_ = 0.0;  ///< when this object was made
  double nodes_ = 1.0;
  double save_seconds_ = 0.0;  ///< the longest of the newest saves of earlier starts
  system::Stopwatch since_;
  std::optional<system::Stopwatch> step_;
  std::vector<double> step_seconds_;
};

}  // namespace longhaul::train
