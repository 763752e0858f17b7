#pragma once

#include <string>
#include <vector>

namespace longhaul::drill {

/// What a drill does to a run.
enum class DrillFault {
  KillWorker,        ///< kill -9 of one rank
  KillWorkers,       ///< of all
  StopWorker,        ///< SIGSTOP: a hang
  KillNode,          ///< kill -9 of everything of the run on a rank's node
  MarkUnhealthy,     ///< the node is excluded, then the rank is killed
  KillSupervisor,    ///< kill -9, then the same command again, as the batch script does
  Terminate,         ///< SIGTERM, then the same command again
  DamageCheckpoint,  ///< a byte of the newest checkpoint is flipped, then a rank is
                     ///< killed
};

const char* drill_fault_name(DrillFault fault);
/// InputError that lists `among`.
DrillFault drill_fault_of(const std::string& name, const std::vector<DrillFault>& among);

/// Those that a run on one machine can live through, and those that need other nodes.
std::vector<DrillFault> faults_of_one_machine();
std::vector<DrillFault> faults_of_nodes(bool with_spares);
/// Those that are injected into a run that somebody else has started.
std::vector<DrillFault> faults_of_live_runs();

}  // namespace longhaul::drill
