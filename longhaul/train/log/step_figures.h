#pragma once

#include <c10/core/Device.h>

#include <cstdint>

#include "longhaul/run/step_record.h"
#include "longhaul/system/log.h"
#include "longhaul/train/history/step_guard.h"
#include "longhaul/train/observe/peak_rate.h"
#include "longhaul/train/session/session.h"

namespace longhaul::train {

/// Returns what a step's record calls the peak of memory, in bytes: the most that tensors
/// have had at once in the device's memory. On a CPU, and where the device's allocator
/// does not count, returns the peak of this process.
int64_t peak_bytes(c10::Device device);

/// How a step went. Of its record StepFigures says the rest.
struct StepOutcome {
  StepRecord record;
  Verdict verdict;  ///< a bad step's update was not made
};

/// Completes a step's record: throughput, memory, and MFU, for which it now and then
/// measures how fast this device multiplies matrices (peak_rate.h).
class StepFigures {
 public:
  explicit StepFigures(const Session& session);

  /// Right after the step, whose time ends now. Memory is the largest over the ranks; a
  /// line of `log` where what MFU relates to has changed. Collective.
  void complete(StepRecord& record, const Session& session, Logger& log);

 private:
  /// `peak_memory`: in, of this rank; out, the largest of all ranks. Collective.
  void settle_peak(const Session& session, int64_t step, double step_rate,
                   int64_t& peak_memory, Logger& log);

  FlopsPerToken flops_;
  PeakRate peak_;  ///< of this rank
};

}  // namespace longhaul::train
