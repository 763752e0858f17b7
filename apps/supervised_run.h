#pragma once

#include <string>
#include <vector>

#include "longhaul/cluster/supervisor/supervisor.h"
#include "longhaul/config/load.h"

namespace longhaul::apps {

/// Returns how many ranks this machine gets: one per accelerator, else one per NUMA node.
int ranks_of_this_node();

/// Returns `file`, or, if it cannot be read any more, the run's own copy of its settings
/// (config.toml in `run_dir`) with a line for people on standard error. With `goes_on`,
/// the run has begun, and a file that holds no settings, such as one that an editor is
/// just writing, counts as one that cannot be read. If no copy can be read either, `file`
/// is returned.
std::string settings_file(const std::string& file, const fs::path& run_dir,
                          const std::vector<std::string>& sets, bool goes_on);

/// Returns the options that a supervisor gets from the settings of its run.
cluster::SupervisorOptions supervisor_options(const RunConfig& config, int ranks);

/// Supervises the run to its end and returns the exit code. Adds the time after the
/// ranks' end to results.json.
int run_supervisor(cluster::SupervisorOptions options, cluster::Launcher launcher,
                   cluster::Fleet& fleet, system::OwnerLock lease);

/// Appends a worker's command line to a launcher's: `program` (this program if it is
/// empty), `train`, its file, its settings, and the flag of a rehearsal where there is
/// one.
std::vector<std::string> train_words(std::vector<std::string> words,
                                     const std::string& file,
                                     const std::vector<std::string>& sets,
                                     const cluster::Attempt& attempt,
                                     const std::string& rehearse,
                                     const std::string& program = {});

}  // namespace longhaul::apps
