#include "apps/run_of_job.h"

#include <fmt/format.h>

#include <cstdlib>

#include "apps/program.h"
#include "longhaul/base/error.h"
#include "longhaul/base/failure.h"
#include "longhaul/base/process.h"
#include "longhaul/cluster/slurm/run_note.h"
#include "longhaul/run/run_lock.h"
#include "longhaul/run/run_past.h"

namespace longhaul::apps {
namespace {

bool alone_in_job() {
  return std::getenv(run::kSupervisorVariable) == nullptr && !job_id().empty();
}

}  // namespace

std::string expected_run(const fs::path& run_dir) {
  if (const char* told = std::getenv(run::kRunToFindVariable)) return told;
  if (!alone_in_job() || job_requeues() == 0) return {};
  try {
    return cluster::missing_run(cluster::SlurmClient(), job_id(), run_dir);
  } catch (const TemporaryError& problem) {
    fail_temporary("run directory",
                   "{} shows no run on {}, and nothing tells whether an earlier start of "
                   "job {} has trained there: {}. Let the job start again, or submit the "
                   "run as a new job to begin it",
                   run_dir.string(), host_name(), job_id(), problem.message());
  }
}

void note_run_of_job(const fs::path& run_dir) {
  if (!alone_in_job() || !cluster::has_program("scontrol")) return;
  try {
    if (const auto run = run::read_run_identity(run_dir))
      cluster::note_run(cluster::SlurmClient(), job_id(), run_dir, *run);
  } catch (const std::exception& problem) {
    say_warning(
        fmt::format("Slurm has no note that this job trains {}: {}; a requeued "
                    "start that finds the directory empty would begin anew",
                    run_dir.string(), to_error(problem).message()));
  }
}

}  // namespace longhaul::apps
