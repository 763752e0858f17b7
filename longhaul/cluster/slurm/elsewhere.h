#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "longhaul/cluster/slurm/job.h"

namespace longhaul::cluster {

/// Has another node of the job do the work of this one, on which the run's directory is
/// missing, cannot be written, or does not hold the run. Starts the supervisor's command
/// line `words` on one node after the other, at most eight, until one does not end with
/// kExitNotHere. `raised` returns the signal that this process got, or 0; it is handed on
/// as SIGUSR1, but for SIGTERM, which Slurm sends to all steps itself. Returns that
/// supervisor's exit code, or 128 if its step was lost; nothing if every node that was
/// asked ended with kExitNotHere.
std::optional<int> run_elsewhere(const SlurmClient& slurm, const SlurmJob& job,
                                 const std::vector<std::string>& words,
                                 const std::function<int()>& raised);

}  // namespace longhaul::cluster
