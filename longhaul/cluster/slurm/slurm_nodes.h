#pragma once

#include <string>
#include <vector>

#include "longhaul/cluster/job_step.h"
#include "longhaul/cluster/secret.h"
#include "longhaul/cluster/slurm/job.h"

namespace longhaul::cluster {

/// Job steps of a run carry these names.
inline constexpr const char* kAgentStep = "longhaul-agent";
inline constexpr const char* kWorkerStep = "longhaul-train";

/// Starts an agent on a node of this job, as a step of its own, which outlives the
/// workers and other nodes. The secret travels in its environment.
JobStep start_agent_step(const std::string& node, const std::vector<std::string>& words,
                         const Secret& secret);

/// Those of these nodes that still belong to the job and answer Slurm. TemporaryError.
std::vector<std::string> usable_nodes(const SlurmClient& slurm, const std::string& job,
                                      const std::vector<std::string>& nodes);

/// Ends the steps of these names that an earlier supervisor of the job has left, but not
/// the one that the caller is part of.
void cancel_steps(const SlurmClient& slurm, const SlurmJob& job,
                  const std::vector<std::string>& names);

}  // namespace longhaul::cluster
