#pragma once

#include <list>
#include <string>
#include <vector>

#include "longhaul/cluster/control/secret.h"
#include "longhaul/cluster/fleet/job_step.h"
#include "longhaul/cluster/slurm/job.h"

namespace longhaul::cluster {

/// Job steps of a run carry these names.
inline constexpr const char* kAgentStep = "longhaul-agent";
inline constexpr const char* kWorkerStep = "longhaul-train";

/// Starts an agent on a node of this job, as a step of its own, which outlives the
/// workers and other nodes. The secret is the first line of its input.
JobStep start_agent_step(const std::string& node, const std::vector<std::string>& words,
                         const Secret& secret);

/// Has an agent's step outlive the srun that runs here, however that one ends: srun has a
/// child that cancels the step when srun dies without a word, as it does in a shutdown,
/// and the step's processes get SIGKILL at once. Call it when the step's task runs.
void let_step_outlive_srun(const JobStep& step);

/// Those of these nodes that still belong to the job and answer Slurm. TemporaryError.
std::vector<std::string> usable_nodes(const SlurmClient& slurm, const std::string& job,
                                      const std::vector<std::string>& nodes);

/// The order in which these nodes' agents take a lost supervisor's place: those that
/// share no switch with `here` first, since a switch takes all of its nodes with it.
std::vector<std::string> succession_order(
    const std::string& here, const std::vector<std::string>& nodes,
    const std::vector<std::vector<std::string>>& switches);

/// Those of this name ("123.4"), but not the one that the caller is part of.
std::vector<std::string> steps_named(const std::vector<StepStatus>& steps,
                                     const SlurmJob& job, const std::string& name);

/// Ends what earlier supervisors or launchers of a job have left. Slurm asks the nodes of
/// a step one by one, lost ones too, so nobody waits for it for long.
class StepKiller {
 public:
  /// Waits at most a second.
  void kill(const std::vector<std::string>& steps);

 private:
  std::list<JobStep> under_way_;
};

}  // namespace longhaul::cluster
