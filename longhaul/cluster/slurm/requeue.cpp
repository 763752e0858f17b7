#include "longhaul/cluster/slurm/requeue.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <chrono>
#include <set>
#include <thread>

#include "longhaul/base/error.h"
#include "longhaul/base/failure.h"
#include "longhaul/base/json.h"
#include "longhaul/base/process.h"
#include "longhaul/cluster/record/exclusions.h"
#include "longhaul/run/files.h"
#include "longhaul/system/stopwatch.h"

namespace longhaul::cluster {
namespace {

using Names = std::set<std::string>;

Names set_of(const std::vector<std::string>& names) {
  return {names.begin(), names.end()};
}

/// What was handed to Slurm before, for this job: the rest of its list is a person's.
fs::path memory_of(const RequeueOptions& options) {
  return options.run_dir / handed_nodes_file(options.job);
}

Names handed_before(const RequeueOptions& options) {
  const fs::path path = memory_of(options);
  if (!fs::exists(path)) return {};
  try {
    return parse_json(read_text(path), path.string()).get<Names>();
  } catch (const Json::exception& problem) {
    throw InputError("slurm", fmt::format("{} is no list of names: {}; remove it",
                                          path.string(), words_of(problem)));
  }
}

Names excluded_of_run(const fs::path& run_dir) {
  Names names;
  for (const ExcludedNode& node : read_excluded(run_dir / kExcludedNodesFile)) {
    // Nobody could test it again if Slurm never gave it.
    if (!has_expired(node, unix_time())) names.insert(node.node);
  }
  return names;
}

struct Exclusion {
  Names before;  ///< as Slurm has it
  Names wanted;
  std::string refusal;  ///< why the run's nodes are not handed over; may be empty
};

/// What Slurm is to leave out from now on.
Exclusion plan(const RequeueOptions& options, const SlurmClient& slurm) {
  Exclusion plan;
  const JobRequest request = slurm.query_request(options.job);
  plan.before = set_of(request.excluded);
  Names own = plan.before;
  for (const std::string& name : handed_before(options)) own.erase(name);
  const Names mine = excluded_of_run(options.run_dir);
  plan.wanted = own;
  plan.wanted.insert(mine.begin(), mine.end());
  size_t left = 0;
  for (const std::string& node : slurm.query_partition(request.partition)) {
    if (!plan.wanted.contains(node)) ++left;
  }
  if (left < options.nodes) {
    plan.refusal = fmt::format(
        "{} has {} other nodes and the job asks for {}: Slurm may give it {} again",
        request.partition, left, options.nodes, fmt::join(mine, ", "));
    if (mine.empty()) plan.refusal.clear();
    plan.wanted = own;
  }
  Names handed;
  for (const std::string& name : plan.wanted) {
    if (!own.contains(name)) handed.insert(name);
  }
  make_directories_durable(memory_of(options).parent_path());
  write_text_durable(memory_of(options), json_text(Json(handed)));
  return plan;
}

/// Slurm refuses it until the job is back in the queue. Where it goes on refusing the job
/// starts earlier, and the next wait is longer.
void start_later(const RequeueOptions& options, const SlurmClient& slurm) {
  const Stopwatch watch;
  while (!slurm.start_later(options.job, options.wait_seconds) &&
         watch.seconds() < options.retry_limit_seconds) {
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
    // The way back into the queue is worth more than the list.
    exclusion.refusal = to_error(problem).what();
  }
  slurm.requeue(options.job);
  if (options.wait_seconds > 0.0) start_later(options, slurm);
  if (exclusion.wanted == exclusion.before) return exclusion.refusal;
  const Stopwatch watch;
  while (true) {
    try {
      slurm.exclude(options.job, {exclusion.wanted.begin(), exclusion.wanted.end()});
      return fmt::format(
          "Slurm leaves out {}; to change that: scontrol update JobId={} "
          "ExcNodeList=...",
          exclusion.wanted.empty() ? "no node any more"
                                   : fmt::format("{}", fmt::join(exclusion.wanted, ", ")),
          options.job);
    } catch (const TemporaryError& problem) {
      if (watch.seconds() > options.retry_limit_seconds) return problem.what();
    }
    std::this_thread::sleep_for(std::chrono::duration<double>(options.retry_seconds));
  }
}

}  // namespace longhaul::cluster
