#include "longhaul/cluster/slurm/slurm_nodes.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <fstream>
#include <set>
#include <thread>

#include "longhaul/system/stopwatch.h"

namespace longhaul::cluster {
namespace {

constexpr double kKillSeconds = 1.0;

}  // namespace

JobStep start_agent_step(const std::string& node, const std::vector<std::string>& words,
                         const Secret& secret) {
  std::vector<std::string> command = {
      "srun",       "--overlap",          "--nodes=1",
      "--ntasks=1", "--nodelist=" + node, fmt::format("--job-name={}", kAgentStep),
      "--quiet"};
  command.insert(command.end(), words.begin(), words.end());
  // srun hands its input on; its environment any process of this user could read. And
  // the agents outlive their supervisor: one of them takes its place.
  return JobStep::start(command, {}, secret.to_line(), SIGKILL);
}

void let_step_outlive_srun(const JobStep& step) {
  std::error_code error;
  const fs::path tasks = fmt::format("/proc/{}/task", step.pid());
  for (const auto& task : fs::directory_iterator(tasks, error)) {
    std::ifstream children(task.path() / "children");
    for (pid_t child = 0; children >> child;) {
      std::string name;
      std::ifstream(fmt::format("/proc/{}/comm", child)) >> name;
      if (name == "srun") ::kill(child, SIGKILL);
    }
  }
}

std::vector<std::string> usable_nodes(const SlurmClient& slurm, const std::string& job,
                                      const std::vector<std::string>& nodes) {
  std::set<std::string> of_slurm;
  if (const auto status = slurm.query_job(job)) {
    of_slurm.insert(status->nodes.begin(), status->nodes.end());
  }
  for (const NodeStatus& node : slurm.query_nodes(nodes)) {
    if (!node.responds) of_slurm.erase(node.name);
  }
  std::vector<std::string> usable;
  std::ranges::copy_if(nodes, std::back_inserter(usable),
                       [&](const std::string& node) { return of_slurm.contains(node); });
  return usable;
}

std::vector<std::string> succession_order(
    const std::string& here, const std::vector<std::string>& nodes,
    const std::vector<std::vector<std::string>>& switches) {
  std::set<std::string> near;
  for (const std::vector<std::string>& one : switches) {
    if (std::ranges::count(one, here) > 0) near.insert(one.begin(), one.end());
  }
  std::vector<std::string> order = nodes;
  std::ranges::stable_sort(order, {},
                           [&](const std::string& node) { return near.contains(node); });
  return order;
}

std::vector<std::string> steps_named(const std::vector<StepStatus>& steps,
                                     const SlurmJob& job, const std::string& name) {
  std::vector<std::string> named;
  for (const StepStatus& step : steps) {
    if (step.id != job.step && step.name == name) named.push_back(step.id);
  }
  return named;
}

void StepKiller::kill(const std::vector<std::string>& steps) {
  for (const std::string& step : steps) {
    under_way_.push_back(JobStep::start(kill_step_command(step), {}));
  }
  const Stopwatch watch;
  while (true) {
    under_way_.remove_if([](JobStep& one) { return one.poll().has_value(); });
    if (under_way_.empty() || watch.seconds() > kKillSeconds) return;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
}

}  // namespace longhaul::cluster
