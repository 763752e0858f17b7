#pragma once

#include <functional>
#include <string>
#include <vector>

#include "longhaul/cluster/slurm/job.h"

namespace longhaul::cluster {

struct StandInOptions {
  std::string job;
  std::vector<std::string> words;  ///< command line of a supervisor that stands in
  std::function<int()> raised;     ///< returns the signal that this process got, or 0
  std::string log;                 ///< file for lines where Slurm names no log
  double retry_seconds = 5.0;  ///< seconds between questions that Slurm did not answer
  double retry_limit_seconds = 1800.0;  ///< seconds after which the job is left as it is
};

/// Does the work of a job's batch script on another node of the job, after the node of
/// the script was lost. With --no-kill, Slurm lets such a job run on for ever without a
/// script. Starts a supervisor in the same allocation, so that the remaining nodes go on
/// training at once. When that supervisor has ended, ends the job: by scancel if the run
/// failed, by a requeue if the run is done or can go on. Slurm has no other good end for
/// such a job; a job that starts again finds the run done. Lines go to the job's log.
/// Returns the supervisor's exit code, unless Slurm ends this process first. The process
/// must be a job step without other threads.
int stand_in_for_script(const StandInOptions& options, const SlurmClient& slurm);

/// Requeues the job of an agent that has no supervisor and can get none, if Slurm says
/// that the job runs. Never requeues a cancelled job, since a requeue would start it
/// again.
void requeue_orphan(const StandInOptions& options, const SlurmClient& slurm);

/// Requeues the job of an agent that was cut off from a supervisor which ended normally,
/// if the job still runs and Slurm has lost the machine of the batch script. Looks for
/// that until options.retry_limit_seconds are over, since Slurm may notice a loss after
/// minutes.
void requeue_deserted(const StandInOptions& options, const SlurmClient& slurm);

/// Cancels or requeues the job of a supervisor that has ended with `status` on another
/// node than that of the batch script, by the rules of stand_in_for_script(). Does so
/// only if the job runs and Slurm has lost the script's machine. Otherwise the script
/// gets the status.
void end_for_lost_script(const StandInOptions& options, const SlurmClient& slurm,
                         int status);

/// Requeues a job that runs, if the run's storage does not answer: touches no file of the
/// run, so that this requeue is not counted and excludes no node.
void requeue_without_storage(const StandInOptions& options, const SlurmClient& slurm);

/// Removes step_variables() from this process's environment, since a supervisor's steps
/// must not inherit them. The process must have no other thread.
void forget_step_environment();

/// Returns the names of the variables in `environment` ("NAME=value") that describe one
/// step and not the job.
std::vector<std::string> step_variables(const std::vector<std::string>& environment);

}  // namespace longhaul::cluster
