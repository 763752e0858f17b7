#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "longhaul/parallel/pipeline/runner.h"
#include "longhaul/train/observe/capture.h"
#include "longhaul/train/observe/profile.h"
#include "longhaul/train/session/session.h"
#include "longhaul/train/step/debug_faults.h"

namespace longhaul::train {

/// What [debug] and [profile] want of a step besides training it: delays, faults, what is
/// captured, where its time went. The trainer says where it is; where they ask for
/// nothing, nothing is done.
class StepHooks {
 public:
  StepHooks(const Session& session, int attempt, Logger& log);

  /// For the stages, which hand it their activations.
  Capture& capture() { return capture_; }
  /// For the stages, which say where their blocks begin and end.
  Profile& profile() { return profile_; }

  /// A step begins; those that are to be profiled are from here on. Collective.
  void begin(int64_t step);
  /// It has ended, with its save: tells what was recorded. A profile as an event for the
  /// run's files, on rank 0. Collective.
  std::optional<ProfileEvent> end();

  /// A phase of the step begins.
  void phase(std::string_view name);
  /// The batch was handed out: what its loss and gradients are multiplied by.
  BatchFault batch(const data::Cursor& cursor) const { return faults_.of_batch(cursor); }
  /// The step's passes begin: the timeline that they are recorded in, or null where none
  /// is wanted.
  parallel::Trace* before_passes(int64_t step);
  /// They have ended: writes what was captured of them in run.dir. Collective.
  void after_passes(int64_t step);
  /// The step's update is made, and its weights are shared.
  void updated(int64_t step) const { faults_.in_memory(session_, step); }

 private:
  void write_capture(int64_t step);

  const Session& session_;
  Logger& log_;
  int attempt_;
  Capture capture_;
  DebugFaults faults_;
  Profile profile_;
  int64_t profiled_ = 0;  ///< the step that is, or was last
};

}  // namespace longhaul::train
