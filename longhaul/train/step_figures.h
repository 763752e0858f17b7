#pragma once

#include <cstdint>

#include "longhaul/base/log.h"
#include "longhaul/run/step_record.h"
#include "longhaul/train/history.h"
#include "longhaul/train/peak_rate.h"
#include "longhaul/train/session.h"
#include "longhaul/train/step_guard.h"

namespace longhaul::train {

/// What the trainer hands over after a step.
struct StepOutcome {
  double loss = 0.0;
  double grad_norm = 0.0;
  double lr = 0.0;
  double step_time = 0.0;  ///< seconds
  double data_time = 0.0;  ///< seconds of it spent waiting for the batch
  double epoch = 0.0;
  Verdict verdict;  ///< a bad step's update was not made
};

/// Makes a step's record of its outcome: throughput, memory, and MFU, for which it now
/// and then measures how fast this device multiplies matrices (peak_rate.h).
class StepFigures {
 public:
  StepFigures(const Session& session, int attempt);

  /// Right after the step. Memory is the largest over the ranks; a line of `log` where
  /// what MFU relates to has changed. Collective.
  StepRecord of(const Session& session, const History& history,
                const StepOutcome& outcome, Logger& log);

 private:
  /// `peak_resident`: in, of this rank; out, the largest of all ranks. Collective.
  void settle_peak(const Session& session, int64_t step, double step_rate,
                   int64_t& peak_resident, Logger& log);

  int attempt_;
  FlopsPerToken flops_;
  PeakRate peak_;  ///< of this rank
};

}  // namespace longhaul::train
