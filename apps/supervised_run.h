#pragma once

#include <string>
#include <vector>

#include "longhaul/cluster/supervisor/supervisor.h"
#include "longhaul/config/load.h"

namespace longhaul::apps {

/// One per accelerator of this machine, else one per NUMA node.
int ranks_of_this_node();

/// What a run's settings mean for its supervisor.
cluster::SupervisorOptions supervisor_options(const RunConfig& config, int ranks);

/// Supervises the run to its end; the exit code. What came after the ranks' own end is
/// added to results.json.
int run_supervisor(cluster::SupervisorOptions options, cluster::Launcher launcher,
                   cluster::Fleet& fleet, OwnerLock lease);

/// The words of a worker: this program, train, its file and settings.
std::vector<std::string> train_words(const std::string& file,
                                     const std::vector<std::string>& sets,
                                     const cluster::Attempt& attempt);

}  // namespace longhaul::apps
