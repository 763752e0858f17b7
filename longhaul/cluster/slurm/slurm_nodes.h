#pragma once

#include <functional>
#include <list>
#include <string>
#include <vector>

#include "longhaul/cluster/control/secret.h"
#include "longhaul/cluster/fleet/job_step.h"
#include "longhaul/cluster/slurm/container.h"
#include "longhaul/cluster/slurm/job.h"

namespace longhaul::cluster {

/// Names of the job steps of a run.
inline constexpr const char* kAgentStep = "longhaul-agent";
inline constexpr const char* kWorkerStep = "longhaul-train";
inline constexpr const char* kSupervisorStep = "longhaul-supervise";

/// Starts a command on a node of this job, as a step of its own of this name that goes on
/// even if SIGKILL ends this process. The step reads `input`.
JobStep start_step_on(const std::string& node, const char* name,
                      const std::vector<std::string>& words,
                      const std::string& input = {});

/// Starts an agent on a node of this job, as a step of its own that outlives the workers
/// and other nodes. The secret is the first line of the agent's input.
JobStep start_agent_step(const std::string& node, const std::vector<std::string>& words,
                         const Secret& secret);

/// Returns the words that start a step of workers on these nodes; the worker's own
/// command line follows. `allocation` has the job's nodes in Slurm's order. The
/// workers run in `container`, if it has an image.
std::vector<std::string> worker_step_words(std::vector<std::string> nodes,
                                           const std::vector<std::string>& allocation,
                                           int ranks_per_node,
                                           const Container& container);

/// Returns a client that waits half an hour for a controller that does not answer, and
/// tells a person so. Without the controller no step can be started or ended and no job
/// requeued, but the allocation stays. `turn` is called before each further question.
SlurmClient patient(const SlurmClient& slurm, std::function<void()> turn = {});

/// Makes an agent's step outlive its srun on this machine, however that srun ends. Kills
/// the child of srun, which would cancel the step when srun dies without a message, for
/// example when the machine is shut down. Call it when the step's task runs.
void let_step_outlive_srun(const JobStep& step);

/// Returns the nodes of `nodes` that still belong to the job and answer Slurm. Throws
/// TemporaryError.
std::vector<std::string> usable_nodes(const SlurmClient& slurm, const std::string& job,
                                      const std::vector<std::string>& nodes);

/// How a start waits for nodes that boot.
struct BootPatience {
  double seconds = 0;
  double pause_seconds = 2;
  std::function<void()> turn = {};  ///< called before each further look; may be empty
  /// Returns whether the waiting is to end at once; may be empty.
  std::function<bool()> stop = {};
};

/// Waits until none of the job's nodes is powering up, and tells a person so. Nodes that
/// do not come in time are taken from the job: before they answer, Slurm starts no step
/// on the others either. Returns the nodes that the job then has. Throws TemporaryError.
std::vector<std::string> await_boot(const SlurmClient& slurm, const std::string& job,
                                    std::vector<std::string> nodes,
                                    const BootPatience& patience);

/// Returns the order in which these nodes' agents take a lost supervisor's place. Nodes
/// that share no switch with `here` come first, since all nodes of a switch are lost with
/// the switch.
std::vector<std::string> succession_order(
    const std::string& here, const std::vector<std::string>& nodes,
    const std::vector<std::vector<std::string>>& switches);

/// Returns the ids ("123.4") of the steps of this name, without the caller's own step.
std::vector<std::string> steps_named(const std::vector<StepStatus>& steps,
                                     const SlurmJob& job, const std::string& name);

/// Kills steps that earlier supervisors or launchers of a job have left. Slurm asks the
/// nodes of a step one by one, also lost nodes, so the caller does not wait for the end.
class StepKiller {
 public:
  /// Begins to kill these steps and waits at most a second.
  void kill(const std::vector<std::string>& steps);

 private:
  std::list<JobStep> under_way_;
};

}  // namespace longhaul::cluster
