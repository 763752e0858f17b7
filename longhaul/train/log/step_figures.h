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

/// How a step went. StepFigures completes its record.
struct StepOutcome {
  run::StepRecord record;
  Verdict verdict;  ///< the update of a bad step was not made
};

/// Completes a step's record with throughput, memory and MFU. For MFU it measures now and
/// then how fast this device multiplies matrices (peak_rate.h).
class StepFigures {
 public:
  explicit StepFigures(const Session& session);

  /// Completes the record right after the step, whose time ends now. The memory is the
  /// largest over the ranks. Logs a line where the rate that MFU relates to has changed.
  /// Collective.
  void complete(run::StepRecord& record, const Session& session, system::Logger& log);

 private:
  FlopsPerToken flops_;
  PeakRate peak_;  ///< rate of this rank's device
};

}  // namespace longhaul::train
