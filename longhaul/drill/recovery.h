#pragma once

#include <cstdint>
#include <string>

#include "longhaul/monitor/run_files.h"

namespace longhaul::drill {

/// Where a run stands when a fault is injected.
struct BeforeFault {
  double time = 0.0;   ///< seconds since 1970
  size_t records = 0;  ///< number of step records until then
  size_t events = 0;   ///< number of events until then
  int attempt = 0;
  int64_t step = 0;  ///< the furthest step
};
/// Returns where the run stands now.
BeforeFault before_fault(const monitor::RunFiles& run);

/// How far the run has come back since a fault.
struct Recovery {
  bool came_back = false;  ///< a later attempt has done a step that none had done before
  double seconds_to_new_step = 0.0;  ///< to the end of that step
  int64_t steps_redone = 0;
  std::string cause;  ///< the supervisor's line about the fault; may be empty
};
/// Returns how far the run has come back since `before`.
Recovery recovery_since(const monitor::RunFiles& run, const BeforeFault& before);

}  // namespace longhaul::drill
