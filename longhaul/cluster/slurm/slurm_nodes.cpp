#include "longhaul/cluster/slurm/slurm_nodes.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <fstream>
#include <set>
#include <thread>

#include "longhaul/base/error.h"
#include "longhaul/base/text.h"
#include "longhaul/system/stopwatch.h"
#include "longhaul/system/terminal.h"

namespace longhaul::cluster {
namespace {

constexpr double kKillSeconds = 1.0;
constexpr double kControllerSeconds = 1800.0;
constexpr size_t kToldNodes = 8;

void tell_log(const std::string& line) {
  fmt::print("longhaul: {}\n", system::printable(line));
  std::fflush(stdout);
}

bool is_among(const std::vector<std::string>& names, const std::string& name) {
  return std::ranges::find(names, name) != names.end();
}

std::vector<std::string> booting_nodes(const SlurmClient& slurm,
                                       const std::vector<std::string>& nodes) {
  std::vector<std::string> names;
  for (const NodeStatus& node : slurm.query_nodes(nodes)) {
    if (node.boots) names.push_back(node.name);
  }
  return names;
}

}  // namespace

JobStep start_step_on(const std::string& node, const char* name,
                      const std::vector<std::string>& words, const std::string& input) {
  std::vector<std::string> command = {
      "srun",       "--overlap",          "--nodes=1",
      "--ntasks=1", "--nodelist=" + node, fmt::format("--job-name={}", name),
      "--quiet"};
  command.insert(command.end(), words.begin(), words.end());
  return JobStep::start(command, {}, input, SIGKILL);
}

JobStep start_agent_step(const std::string& node, const std::vector<std::string>& words,
                         const Secret& secret) {
  // srun passes its input on to the step. Other processes cannot read its input, though
  // they can read its environment. The agents outlive their supervisor, so that one of
  // them takes its place.
  return start_step_on(node, kAgentStep, words, secret.to_line());
}

std::vector<std::string> worker_step_words(std::vector<std::string> nodes,
                                           const std::vector<std::string>& allocation,
                                           int ranks_per_node,
                                           const Container& container) {
  // Slurm numbers a step's nodes in the allocation's order.
  std::ranges::sort(nodes, {}, [&](const std::string& node) {
    return std::ranges::find(allocation, node) - allocation.begin();
  });
  // Slurm's PMIx looks for a rank's node by the node's place both in the step and in the
  // job's list of nodes. If the two places differ, as after a spare has taken a lost
  // node's place, some starts ask a wrong node for an address and wait for ever. So the
  // step is told of its own nodes alone.
  const std::string list = fmt::format("{}", fmt::join(nodes, ","));
  const auto ranks = nodes.size() * static_cast<size_t>(ranks_per_node);
  std::vector<std::string> words = {"env",
                                    "SLURM_JOB_NODELIST=" + list,
                                    "SLURM_NODELIST=" + list,
                                    "srun",
                                    "--overlap",
                                    "--mpi=pmix",
                                    fmt::format("--nodes={}", nodes.size()),
                                    fmt::format("--ntasks={}", ranks),
                                    fmt::format("--ntasks-per-node={}", ranks_per_node),
                                    "--nodelist=" + list,
                                    fmt::format("--job-name={}", kWorkerStep),
                                    "--kill-on-bad-exit=0"};
  const auto of_container = container_words(container);
  words.insert(words.end(), of_container.begin(), of_container.end());
  return words;
}

SlurmClient patient(const SlurmClient& slurm, std::function<void()> turn) {
  SlurmPatience patience;
  patience.seconds = kControllerSeconds;
  patience.tell = tell_log;
  patience.turn = std::move(turn);
  return slurm.waiting(std::move(patience));
}

void let_step_outlive_srun(const JobStep& step) {
  for (const fs::path& task : paths_in(fmt::format("/proc/{}/task", step.pid()))) {
    std::ifstream children(task / "children");
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

std::vector<std::string> await_boot(const SlurmClient& slurm, const std::string& job,
                                    std::vector<std::string> nodes,
                                    const BootPatience& patience) {
  const system::Stopwatch watch;
  std::vector<std::string> missing = booting_nodes(slurm, nodes);
  if (missing.empty()) return nodes;
  tell_log(
      fmt::format("Slurm shows {} powering up: the start waits, at most {:g} s "
                  "(resilience.node_boot_s)",
                  listed(missing, kToldNodes), patience.seconds));
  while (!missing.empty() && watch.seconds() < patience.seconds) {
    if (patience.stop && patience.stop()) return nodes;
    std::this_thread::sleep_for(std::chrono::duration<double>(patience.pause_seconds));
    if (patience.turn) patience.turn();
    missing = booting_nodes(slurm, nodes);
  }
  // A node that Slurm has given up during the wait is down and no longer belongs to the
  // job.
  if (const auto now = slurm.query_job(job)) nodes = now->nodes;
  std::erase_if(missing, [&](const auto& node) { return !is_among(nodes, node); });
  if (missing.empty()) {
    tell_log(
        fmt::format("no node is powering up any more, after {:.0f} s", watch.seconds()));
    return nodes;
  }
  tell_log(
      fmt::format("{} did not boot within {:g} s (resilience.node_boot_s): the job goes "
                  "on without",
                  listed(missing, kToldNodes), patience.seconds));
  std::erase_if(nodes, [&](const auto& node) { return is_among(missing, node); });
  try {
    slurm.keep_nodes(job, nodes);
  } catch (const TemporaryError& refused) {
    tell_log(
        fmt::format("Slurm keeps {} in the job, and may start nothing before that boots: "
                    "{}",
                    listed(missing, kToldNodes), refused.message()));
  }
  return nodes;
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
  const system::Stopwatch watch;
  while (true) {
    under_way_.remove_if([](JobStep& one) { return one.poll().has_value(); });
    if (under_way_.empty() || watch.seconds() > kKillSeconds) return;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
}

}  // namespace longhaul::cluster
