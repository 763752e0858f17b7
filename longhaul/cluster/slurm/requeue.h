#pragma once

#include <string>

#include "longhaul/base/file.h"
#include "longhaul/cluster/slurm/job.h"

namespace longhaul::cluster {

struct RequeueOptions {
  std::string job;
  fs::path run_dir;           ///< holds excluded_nodes.json
  size_t nodes = 0;           ///< how many nodes the job asks for
  double wait_seconds = 0.0;  ///< seconds before the job may start again
  double retry_seconds = 0.2;
  double retry_limit_seconds = 5.0;  ///< Slurm ends the caller soon after the requeue
};

/// Gives the job back to the queue and has Slurm leave out the nodes that the run has
/// excluded. The list of a running job cannot be changed, so it is changed right after
/// the requeue. Nodes that a person excluded with --exclude stay excluded; nodes that an
/// earlier call excluded, and that the run does not exclude any more, are given back. If
/// the job's partitions have too few other nodes, nothing is excluded: such a job would
/// never start. Slurm then ends the caller, which must ignore the signals that ask for
/// it. Throws TemporaryError when the job was not requeued. Returns one line about the
/// nodes that Slurm leaves out, or an empty text.
std::string requeue_without_excluded(const RequeueOptions& options,
                                     const SlurmClient& slurm);

}  // namespace longhaul::cluster
