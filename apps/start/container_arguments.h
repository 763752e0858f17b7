#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "longhaul/cluster/slurm/batch_script.h"
#include "longhaul/cluster/slurm/container.h"
#include "longhaul/config/run_config.h"

namespace longhaul::apps {

/// Adds --container, --container-mount and --container-program; `command` must outlive
/// the parsing.
void add_container_options(CLI::App& verb, cluster::SuperviseCommand& command);

/// Returns the container of a run's ranks, with all that the run names, its file and this
/// program; no container if no image was given. Throws InputError for what cannot be
/// mounted.
cluster::Container container_of_run(const cluster::SuperviseCommand& command,
                                    const RunConfig& config);

/// Returns the container of a verb, with all that its command line names. If a run file
/// is among them, the container also has all that the run file names. Throws as
/// container_of_run() does.
cluster::Container container_of_verb(const cluster::SuperviseCommand& command,
                                     const std::vector<std::string>& words);

}  // namespace longhaul::apps
