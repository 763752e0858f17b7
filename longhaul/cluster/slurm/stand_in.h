#pragma once

#include <functional>
#include <string>
#include <vector>

#include "longhaul/cluster/slurm/job.h"

namespace longhaul::cluster {

struct StandInOptions {
  std::string job;
  std::vector<std::string> words;       ///< starts a supervisor that knows it stands in
  std::function<int()> raised;          ///< the signal that this process was sent, or 0
  std::string log;                      ///< where lines go if Slurm does not say
  double retry_seconds = 5.0;           ///< between questions that Slurm did not answer
  double retry_limit_seconds = 1800.0;  ///< then the job is left as it is
};

/// Does the work of a job's batch script on another node of the job, after the node that
/// ran the script was lost: with --no-kill Slurm lets such a job run on, without a
/// script, for ever. Starts a supervisor in the same allocation, so that the nodes that
/// are left go on training at once, and ends the job when that has ended: with a requeue
/// where the run is done or can go on (Slurm knows no other way to end such a job well:
/// the next life finds the run done), with scancel where it failed. Its lines go to the
/// job's log. Returns the supervisor's exit code if Slurm does not end this process
/// first. The process must be a job step with no other thread.
int stand_in_for_script(const StandInOptions& options, const SlurmClient& slurm);

/// For an agent that finds nobody to serve, where no supervisor can be had: gives the job
/// back to the queue if Slurm says that it runs. Never a cancelled one: that would bring
/// it back to life. `words` as for a supervisor.
void requeue_orphan(const StandInOptions& options, const SlurmClient& slurm);

/// For an agent that was cut off from a supervisor which ended in order: requeues the job
/// if it still runs and Slurm has lost the machine of its script. Looks for that as long
/// as options.retry_limit_seconds: Slurm may notice a loss after minutes.
void requeue_deserted(const StandInOptions& options, const SlurmClient& slurm);

/// The same where the run's storage does not answer: no file of the run is touched, so
/// this requeue is not counted and excludes no node.
void requeue_without_storage(const StandInOptions& options, const SlurmClient& slurm);

/// Removes from this process's environment what says something of its own step: a
/// supervisor's steps must not inherit it. The process must have no other thread.
void forget_step_environment();

/// The names among these ("NAME=value") that say something of one step and not of the
/// job.
std::vector<std::string> step_variables(const std::vector<std::string>& environment);

}  // namespace longhaul::cluster
