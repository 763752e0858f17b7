#pragma once

#include <cstdint>
#include <string>

#include "longhaul/base/file.h"
#include "longhaul/drill/drilled_fault.h"
#include "longhaul/run/run_status.h"

namespace longhaul::drill {

/// Does one of the faults of live runs, or KillWorkers, to a run whose status.json was
/// read. `rank` names the worker, or the node by one of its ranks. If the worker is on
/// another node of a Slurm job, a new job step on that node does it (srun --overlap).
///
/// No signal is sent to a process by its number alone: the process must keep the rank's
/// record, must have begun before the record, and must be called "longhaul rank N".
///
/// Throws InputError if there is no such rank or the rank cannot be reached from here;
/// TemporaryError if the rank has ended since status.json was written or srun does not
/// answer.
void strike(const fs::path& run_dir, const run::RunStatus& status, DrillFault fault,
            int64_t rank);

/// An order that is carried out on the node itself: kill-worker, stop-worker or
/// kill-node.
struct StrikeHere {
  DrillFault fault = DrillFault::KillWorker;
  int64_t rank = 0;
  int64_t process = 0;  ///< the rank's process according to status.json
  std::string job;      ///< Slurm's number, or empty
};
/// Carries out the order on this node. Throws the errors of strike().
void strike_here(const fs::path& run_dir, const StrikeHere& order);

}  // namespace longhaul::drill
