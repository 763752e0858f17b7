#pragma once

#include <string>

#include "longhaul/base/file.h"
#include "longhaul/cluster/record/restart_policy.h"
#include "longhaul/system/log.h"

namespace longhaul::cluster {

/// Reads the counts of this job's faults (control/restarts.json of the run), so that a
/// supervisor that stands in, or the supervisor after a requeue, goes on counting. Counts
/// start anew if the record is of another job, which a person has submitted, or if `job`
/// is empty, because a person has started the run. With a warning, they also start anew
/// if the record cannot be read.
RestartCounts read_restarts(const fs::path& run_dir, const std::string& job,
                            system::Logger& log);
/// Writes the record, or warns that it cannot be written. Does nothing without a job.
void write_restarts(const fs::path& run_dir, const std::string& job,
                    const RestartCounts& counts, system::Logger& log);

}  // namespace longhaul::cluster
