#pragma once

#include <string>

#include "longhaul/base/file.h"

namespace longhaul::apps {

/// Returns the run that a start must find in `run_dir`, or among its checkpoints, since
/// an earlier start of this Slurm job has trained it there; empty: none is known. Under a
/// supervisor this is what the supervisor says. Throws TemporaryError where the directory
/// shows no run in a job that was requeued, and Slurm cannot be asked.
std::string expected_run(const fs::path& run_dir);

/// Writes into the record of this Slurm job that it trains the run in this directory. A
/// failure is a warning. Does nothing outside of a job, and under a supervisor, which
/// does it itself.
void note_run_of_job(const fs::path& run_dir);

}  // namespace longhaul::apps
