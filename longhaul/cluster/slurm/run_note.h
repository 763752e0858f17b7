#pragma once

#include <string>

#include "longhaul/base/file.h"
#include "longhaul/cluster/slurm/job.h"

namespace longhaul::cluster {

// A job keeps in Slurm's own record which run it has trained in which directory: in its
// comment, behind what a person wrote there. The comment outlives a requeue, even if the
// run's directory is not mounted when the job then starts again.

/// Writes into the job's comment that it trains this run in this directory. Does nothing
/// if the comment says so already. Throws TemporaryError.
void note_run(const SlurmClient& slurm, const std::string& job, const fs::path& run_dir,
              const std::string& run);

/// Returns the run that an earlier start of this job has trained in this directory, if
/// the directory holds no run now, or a run that never had a state. Returns an empty text
/// if nothing is missing. Asks Slurm only if the directory holds no run that has begun.
/// Throws TemporaryError if Slurm does not answer, or if the directory cannot be read.
std::string missing_run(const SlurmClient& slurm, const std::string& job,
                        const fs::path& run_dir);

}  // namespace longhaul::cluster
