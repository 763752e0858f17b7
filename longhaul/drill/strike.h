#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "longhaul/base/file.h"
#include "longhaul/drill/drilled_fault.h"
#include "longhaul/run/run_status.h"

namespace longhaul::drill {

/// Does one of the faults of live runs, or KillWorkers, to a run as its status.json shows
/// it. `rank` names the worker, or the node by one of its ranks. On another node of a
/// Slurm job it is done there by a job step of its own (srun --overlap).
///
/// No signal is sent by a number alone: the process has to be the one that keeps the
/// rank's record, began before the record did, and is called "longhaul rank N".
///
/// InputError where there is no such rank or it cannot be reached from here;
/// TemporaryError where it is gone meanwhile or srun does not answer.
void strike(const fs::path& run_dir, const RunStatus& status, DrillFault fault,
            int64_t rank);

/// What is done on the node itself: kill-worker, stop-worker or kill-node.
struct StrikeHere {
  DrillFault fault = DrillFault::KillWorker;
  int64_t rank = 0;
  int64_t process = 0;  ///< the rank's, as status.json has it
  std::string job;      ///< Slurm's number, or empty
};
/// Errors as above.
void strike_here(const fs::path& run_dir, const StrikeHere& order);

}  // namespace longhaul::drill
