#pragma once

#include <cstdint>
#include <functional>
#include <string_view>

#include "longhaul/parallel/pipeline/runner.h"
#include "longhaul/train/capture.h"
#include "longhaul/train/debug_faults.h"
#include "longhaul/train/session.h"

namespace longhaul::train {

/// What [debug] and [profile] want of a step besides training it: delays, faults, what is
/// captured, a timeline. The trainer says where it is; where they ask for nothing,
/// nothing is done.
class StepHooks {
 public:
  StepHooks(const Session& session, int attempt, Logger& log);

  /// For the stages, which hand it their activations.
  Capture& capture() { return capture_; }

  /// A phase of the step begins.
  void phase(std::string_view name) const;
  /// The batch was handed out: what its loss and gradients are multiplied by.
  BatchFault batch(const data::Cursor& cursor) const { return faults_.of_batch(cursor); }
  /// Runs the step's passes and writes what was captured of them, and their timeline, in
  /// run.dir. `run` gets null where no timeline is wanted. Collective.
  void passes(int64_t step, const std::function<void(parallel::Trace*)>& run);
  /// The step's update is made, and its weights are shared.
  void updated(int64_t step) const { faults_.in_memory(session_, step); }

 private:
  void run_with_timeline(int64_t step, const std::function<void(parallel::Trace*)>& run);
  void write_capture(int64_t step);

  const Session& session_;
  Logger& log_;
  int attempt_;
  Capture capture_;
  DebugFaults faults_;
};

}  // namespace longhaul::train
