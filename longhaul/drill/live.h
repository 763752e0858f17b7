#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "longhaul/base/file.h"
#include "longhaul/drill/drilled_fault.h"

namespace longhaul::drill {

struct LiveDrillOptions {
  fs::path run;  ///< the run's directory, or its configuration
  DrillFault fault = DrillFault::KillWorker;
  int64_t rank = 0;
  bool yes = false;                    ///< without asking
  std::optional<double> wait_seconds;  ///< by default as the fault needs
  bool json = false;
};

/// Injects a fault into a run that trains now, after a person has said yes, and follows
/// it until a later start has done a step that none had done. The exit code: 0 it came
/// back, 1 it did not within the time, or nobody said yes. InputError where there is no
/// such run or rank, or where the run could not come back; TemporaryError where it does
/// not train just now.
int drill_live_run(const LiveDrillOptions& options);

}  // namespace longhaul::drill
