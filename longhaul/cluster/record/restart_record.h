#pragma once

#include <string>

#include "longhaul/base/file.h"
#include "longhaul/cluster/record/restart_policy.h"
#include "longhaul/system/log.h"

namespace longhaul::cluster {

/// What the faults of this job have come to (control/restarts.json of the run), so that a
/// supervisor that stands in, or one after a requeue, goes on counting. Nothing yet for
/// another job: a person has submitted it; nor without a number of a job: a person has
/// started it. A record that cannot be read counts nothing, with a warning.
RestartCounts read_restarts(const fs::path& run_dir, const std::string& job, Logger& log);
void write_restarts(const fs::path& run_dir, const std::string& job,
                    const RestartCounts& counts, Logger& log);

}  // namespace longhaul::cluster
