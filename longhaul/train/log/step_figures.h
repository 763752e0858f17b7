#pragma once

#include <c10/core/Device.h>

#include <array>
#include <cstdint>
#include <span>

#include "longhaul/run/step_record.h"
#include "longhaul/session/session.h"
#include "longhaul/system/log.h"
#include "longhaul/train/history/step_guard.h"
#include "longhaul/train/log/peak_rate.h"

namespace longhaul::train {

/// Returns what a step's record calls the peak of memory, in bytes: the most that tensors
/// have had at once in the device's memory. On a CPU, and where the device's allocator
/// does not count, returns the peak of this process.
int64_t peak_bytes(c10::Device device);

/// Returns the memory that is in use now, in bytes, as peak_bytes() counts it. Does not
/// wait for the device.
int64_t used_bytes(c10::Device device);

/// A point at which memory is noted.
enum class MemoryPhase { Weights, Forward, Backward, Update, BeforeSave, AfterSave };

/// How a step went. StepFigures completes its record.
struct StepOutcome {
  run::StepRecord record;
  Verdict verdict;  ///< the update of a bad step was not made
};

/// Completes a step's record with throughput, memory and MFU. For MFU it measures now and
/// then how fast this device multiplies matrices (peak_rate.h).
class StepFigures {
 public:
  explicit StepFigures(const session::Session& session);

  /// Completes the record right after the step, whose time ends now. The memory is the
  /// largest over the ranks. Logs a line where the rate that MFU relates to has changed.
  /// Collective.
  void complete(run::StepRecord& record, const session::Session& session,
                system::Logger& log);

  /// Notes the memory in use now. Only the first note of a phase counts: for the phases
  /// up to the update the first of the start, for a save the first since the last step's
  /// record.
  void note(MemoryPhase phase);
  /// Returns the memory that was noted between the last two calls of complete(): the
  /// largest values over the ranks.
  const run::PhaseMemory& phase_memory() const { return phase_memory_; }
  /// Returns the memory that was noted since the last step's record. Collective.
  run::PhaseMemory last_phase_memory(const session::Session& session);

 private:
  static constexpr size_t kPhases = 6;
  run::PhaseMemory named(std::span<const int64_t> bytes);

  FlopsPerToken flops_;
  PeakRate peak_;  ///< rate of this rank's device
  c10::Device device_;
  std::array<int64_t, kPhases> noted_{};  ///< 0: not noted
  std::array<bool, kPhases> told_{};  ///< whether a record of this start has the phase
  run::PhaseMemory phase_memory_;
};

}  // namespace longhaul::train
