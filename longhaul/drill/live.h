#pragma once

#include <cstdint>
#include <optional>

#include "longhaul/base/file.h"
#include "longhaul/drill/drilled_fault.h"

namespace longhaul::drill {

struct LiveDrillOptions {
  fs::path run;  ///< the run's directory, or its configuration
  DrillFault fault = DrillFault::KillWorker;
  int64_t rank = -1;
  bool yes = false;                    ///< do it without asking
  std::optional<double> wait_seconds;  ///< absent: as long as the fault needs
  bool json = false;
};

/// Injects a fault into a run that trains now, after a person has said yes, and follows
/// the run until a later start has done a step that no start had done before. Returns the
/// exit code: 0 when the run came back; 1 when it did not within the time, or when nobody
/// said yes. Throws InputError if there is no such run or rank, or if the run could not
/// come back; TemporaryError if the run does not train just now.
int drill_live_run(const LiveDrillOptions& options);

}  // namespace longhaul::drill
