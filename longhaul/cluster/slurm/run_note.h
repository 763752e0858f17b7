#pragma once

#include <string>

#include "longhaul/base/file.h"
#include "longhaul/cluster/slurm/job.h"

namespace longhaul::cluster {

// A job keeps in Slurm's own record which run it has trained in which directory: in its
// comment, behind what a person wrote there. The comment outlives a requeue, also where
// the run's directory is not mounted when the next life of the job begins.

/// Writes into the job's comment that it trains this run in this directory. Does nothing
/// where the comment says so already. Throws TemporaryError.
void note_run(const SlurmClient& slurm, const std::string& job, const fs::path& run_dir,
              const std::string& run);

/// Returns the run that an earlier start of this job has trained in this directory, where
/// the directory does not show it: it holds no run, or one that never had a state. Empty:
/// nothing is missing. Asks Slurm only where the directory shows no run that has begun.
/// Throws TemporaryError where Slurm does not answer, or the directory cannot be read.
std::string missing_run(const SlurmClient& slurm, const std::string& job,
                        const fs::path& run_dir);

}  // namespace longhaul::cluster
