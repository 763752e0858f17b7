#pragma once

#include <string>
#include <vector>

namespace longhaul::drill {

/// What a drill does to a run.
enum class DrillFault {
  KillWorker,        ///< SIGKILL to one rank
  KillWorkers,       ///< SIGKILL to all ranks
  StopWorker,        ///< SIGSTOP to one rank, which is a hang
  KillNode,          ///< SIGKILL to all processes of the run on a rank's node
  MarkUnhealthy,     ///< the node is excluded, then the rank is killed
  KillSupervisor,    ///< SIGKILL, then the same command again, as the batch script does
  Terminate,         ///< SIGTERM, then the same command again
  DamageCheckpoint,  ///< a byte of the newest checkpoint is flipped, then a rank is
                     ///< killed
};

const char* drill_fault_name(DrillFault fault);
/// Returns the fault of this name. Throws InputError, which lists `among`, for other
/// names.
DrillFault drill_fault_of(const std::string& name, const std::vector<DrillFault>& among);

/// Returns the faults that a run on one machine can survive.
std::vector<DrillFault> faults_of_one_machine();
/// Returns the faults that a run on several nodes, with or without spares, can survive.
std::vector<DrillFault> faults_of_nodes(bool with_spares);
/// Returns the faults for a run that a person has started.
std::vector<DrillFault> faults_of_live_runs();

}  // namespace longhaul::drill
