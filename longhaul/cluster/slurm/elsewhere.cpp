#include "longhaul/cluster/slurm/elsewhere.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <thread>
#include <utility>

#include "longhaul/base/exit_code.h"
#include "longhaul/cluster/fleet/job_step.h"
#include "longhaul/cluster/slurm/slurm_nodes.h"

namespace longhaul::cluster {
namespace {

/// The most nodes that are asked. A run of which so many nodes see nothing is probably
/// gone.
constexpr size_t kMostAsked = 8;
/// The exit code for a supervisor of whose end nothing is known. A batch script then
/// starts another supervisor, a few times.
constexpr int kLost = 128;

int run_on(const std::string& node, const std::vector<std::string>& words,
           const std::function<int()>& raised) {
  JobStep step = start_step_on(node, kSupervisorStep, words);
  int passed = 0;
  while (true) {
    if (const auto end = step.poll()) return end->exit_code == 1 ? kLost : end->exit_code;
    const int signal = raised();
    if (std::exchange(passed, signal) != signal && signal != SIGTERM)
      step.signal(SIGUSR1);
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
}

}  // namespace

std::optional<int> run_elsewhere(const SlurmClient& slurm, const SlurmJob& job,
                                 const std::vector<std::string>& words,
                                 const std::function<int()>& raised) {
  std::vector<std::string> others = job.nodes;
  std::erase(others, job.here);
  others = succession_order(job.here, usable_nodes(slurm, job.id, others),
                            slurm.query_switches());
  others.resize(std::min(others.size(), kMostAsked));
  for (const std::string& node : others) {
    fmt::print("longhaul: {} is asked to supervise in place of {}\n", node, job.here);
    std::fflush(stdout);
    const int exit_code = run_on(node, words, raised);
    if (exit_code != kExitNotHere) return exit_code;
  }
  return std::nullopt;
}

}  // namespace longhaul::cluster
