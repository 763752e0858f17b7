#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "longhaul/parallel/pipeline/runner.h"
#include "longhaul/session/capture.h"
#include "longhaul/session/profile.h"
#include "longhaul/session/session.h"
#include "longhaul/train/step/debug_faults.h"
#include "longhaul/train/step/key_watch.h"

namespace longhaul::train {

/// What a step does besides training: what [debug] and [profile] add (delays, faults,
/// captures, timelines), and the watch over what the device compiles. The trainer calls a
/// hook at each point of the step; a hook does nothing where the settings ask for
/// nothing.
class StepHooks {
 public:
  StepHooks(const session::Session& session, int attempt, system::Logger& log);

  /// Returns the capture, to which the stages hand their activations.
  session::Capture& capture() { return capture_; }
  /// Returns the profile, to which the stages report when their blocks begin and end.
  session::Profile& profile() { return profile_; }

  /// Begins a step, and its recording where the step is to be profiled. Collective.
  void begin(int64_t step);
  /// Ends a step, after its save. Tells of keys that were compiled late, writes what was
  /// recorded, and returns the profile as an event for the run's files on rank 0.
  /// Collective.
  std::optional<run::ProfileEvent> end();

  /// Begins a phase of the step.
  void phase(std::string_view name);
  /// Returns the factors by which the loss and the gradients of the batch that was just
  /// handed out are multiplied.
  BatchFault batch(const data::Cursor& cursor) const { return faults_.of_batch(cursor); }
  /// Begins the step's passes. Returns the timeline in which they are recorded, null
  /// where no timeline is wanted.
  parallel::Trace* before_passes(int64_t step);
  /// Ends the step's passes, and writes the captured tensors in run.dir. Collective.
  void after_passes(int64_t step);
  /// Makes the step's faults of memory. Must be called when the step's update is made and
  /// its weights are shared.
  void updated(int64_t step) const { faults_.in_memory(session_, step); }

 private:
  void write_capture(int64_t step);

  const session::Session& session_;
  system::Logger& log_;
  int attempt_;
  session::Capture capture_;
  DebugFaults faults_;
  session::Profile profile_;
  KeyWatch keys_;
  int64_t ended_ = 0;     ///< the steps that this start has ended
  int64_t profiled_ = 0;  ///< the step that is being profiled, or was profiled last
};

}  // namespace longhaul::train
