#include "longhaul/cluster/slurm/requeue.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <chrono>
#include <functional>
#include <set>
#include <thread>

#include "longhaul/base/error.h"
#include "longhaul/base/failure.h"
#include "longhaul/base/process.h"
#include "longhaul/cluster/record/exclusions.h"
#include "longhaul/run/files.h"
#include "longhaul/system/stopwatch.h"

namespace longhaul::cluster {
namespace {

using Names = std::set<std::string>;

/// Returns the file with the nodes that Slurm was told to leave out for this job. The
/// other nodes of Slurm's list were excluded by a person.
RecordFile handed_file(const RequeueOptions& options) {
  return {options.run_dir / run::handed_nodes_file(options.job), "list of names"};
}

Names excluded_of_run(const fs::path& run_dir) {
  Names names;
  for (const ExcludedNode& node : read_excluded(run_dir / run::kExcludedNodesFile)) {
    // An expired exclusion is not handed over: the node can be tested again only when
    // Slurm gives it.
    if (!has_expired(node, unix_time())) names.insert(node.node);
  }
  return names;
}

struct Exclusion {
  Names before;  ///< the list that Slurm has
  Names wanted;
  std::string refusal;  ///< why the run's nodes are not handed over; may be empty
};

/// Plans what Slurm is to leave out from now on, and writes down the run's part of it.
Exclusion plan(const RequeueOptions& options, const SlurmClient& slurm) {
  Exclusion plan;
  const JobRequest request = slurm.query_request(options.job);
  plan.before = {request.excluded.begin(), request.excluded.end()};
  Names own = plan.before;
  for (const std::string& name : handed_file(options).read<Names>()) own.erase(name);
  const Names mine = excluded_of_run(options.run_dir);
  plan.wanted = own;
  plan.wanted.insert(mine.begin(), mine.end());
  size_t left = 0;
  for (const std::string& node : slurm.query_partition(request.partition)) {
    if (!plan.wanted.contains(node)) ++left;
  }
  if (left < options.nodes) {
    plan.refusal = fmt::format(
        "partition {} has {} other nodes, but the job asks for {}: Slurm may give the "
        "job {} again",
        request.partition, left, options.nodes, fmt::join(mine, ", "));
    if (mine.empty()) plan.refusal.clear();
    plan.wanted = own;
  }
  Names handed;
  for (const std::string& name : plan.wanted) {
    if (!own.contains(name)) handed.insert(name);
  }
  handed_file(options).replace(handed);
  return plan;
}

/// Calls `ask` until Slurm has done what is asked, or until the time is over: Slurm
/// refuses to change a job that is not yet back in the queue.
void insist_shortly(const RequeueOptions& options, const std::function<bool()>& ask) {
  const system::Stopwatch watch;
  while (!ask() && watch.seconds() < options.retry_limit_seconds) {
    std::this_thread::sleep_for(std::chrono::duration<double>(options.retry_seconds));
  }
}

}  // namespace

std::string requeue_without_excluded(const RequeueOptions& options,
                                     const SlurmClient& slurm) {
  Exclusion exclusion;
  try {
    exclusion = plan(options, slurm);
  } catch (const std::exception& problem) {
    // The job is requeued even if Slurm refuses the list of excluded nodes.
    exclusion.refusal = to_error(problem).what();
  }
  slurm.requeue(options.job);
  if (options.wait_seconds > 0.0) {
    // If Slurm goes on refusing, the job starts without the wait, and the next requeue
    // waits longer.
    insist_shortly(options,
                   [&] { return slurm.start_later(options.job, options.wait_seconds); });
  }
  if (exclusion.wanted == exclusion.before) return exclusion.refusal;
  std::string told;
  insist_shortly(options, [&] {
    try {
      slurm.exclude(options.job, {exclusion.wanted.begin(), exclusion.wanted.end()});
      told = fmt::format(
          "Slurm leaves out {}; to change that: scontrol update JobId={} ExcNodeList=...",
          exclusion.wanted.empty() ? "no nodes any more"
                                   : fmt::format("{}", fmt::join(exclusion.wanted, ", ")),
          options.job);
      return true;
    } catch (const TemporaryError& problem) {
      told = problem.what();
      return false;
    }
  });
  return told;
}

}  // namespace longhaul::cluster
