#pragma once

#include <string>

#include "longhaul/base/file.h"

namespace longhaul::apps {

/// Returns the id of the run that an earlier start of this Slurm job has trained in
/// `run_dir`. This start must find the run there or among its checkpoints. Returns an
/// empty text if no such run is known. Under a supervisor this is what the supervisor
/// says. Throws TemporaryError if the job was requeued, `run_dir` contains no run, and
/// Slurm cannot be asked.
std::string expected_run(const fs::path& run_dir);

/// Writes into the record of this Slurm job that it trains the run in this directory. A
/// failure is a warning. Does nothing outside of a job, and under a supervisor, which
/// writes this itself.
void note_run_of_job(const fs::path& run_dir);

}  // namespace longhaul::apps
