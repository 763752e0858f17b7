#pragma once

#include <string>
#include <vector>

#include "longhaul/base/file.h"
#include "longhaul/cluster/slurm/job.h"

namespace longhaul::cluster {

struct RequeueOptions {
  std::string job;
  fs::path run_dir;           ///< holds excluded_nodes.json
  size_t nodes = 0;           ///< that the job asks for
  double wait_seconds = 0.0;  ///< before the job may start again
  double retry_seconds = 0.2;
  double retry_limit_seconds = 5.0;  ///< Slurm ends the caller soon after the requeue
};

/// Gives the job back to the queue, and has Slurm leave out the nodes that the run has
/// excluded: nobody may change that list of a running job, so it is done at once
/// afterwards. What a person excluded with --exclude stays; nodes that were excluded here
/// before and are no more are given back. Where the job's partitions have too few other
/// nodes nothing is excluded: such a job would never start, not even when a node is
/// mended. Slurm ends the caller after this; signals that ask for that must be ignored.
/// TemporaryError when the job was not requeued; the rest is told in the result, one
/// line.
std::string requeue_without_excluded(const RequeueOptions& options,
                                     const SlurmClient& slurm);

}  // namespace longhaul::cluster
