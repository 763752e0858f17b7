#include "apps/start/other_launcher.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>

#include "longhaul/base/error.h"
#include "longhaul/base/numbers.h"
#include "longhaul/base/process.h"
#include "longhaul/system/terminal.h"

namespace longhaul::apps {
namespace {

using Environment = std::function<const char*(const char*)>;

/// Returns the whole number in a variable, or `otherwise` if the variable holds none:
/// other programs set it as they like.
int number(const Environment& environment, const char* name, int otherwise) {
  const char* const text = environment(name);
  return text == nullptr ? otherwise : whole_number<int>(text).value_or(otherwise);
}

/// Returns the command to type for `ranks` ranks, of which `each` run on one machine.
std::string command_for(const std::vector<std::string>& words, int ranks, int each) {
  std::string rest;
  if (words.size() > 1) {
    rest = " " + system::describe_command({words.begin() + 1, words.end()});
  }
  const std::string verb = words.empty() ? "train" : words.front();
  if (verb != "train") {
    const bool starts_ranks = verb == "launch" || verb == "supervise";
    return starts_ranks ? fmt::format("`longhaul {}{}`, once", verb, rest)
                        : fmt::format("`mpirun -n {} longhaul {}{}`", ranks, verb, rest);
  }
  if (rest.empty()) rest = " run.toml";
  std::string here = fmt::format("`longhaul launch -n {}{}`", ranks, rest);
  if (each >= ranks) return here;
  return fmt::format(
      "`longhaul launch -n {} --ranks-per-node {} --hosts HOST1,HOST2,...{}` on one "
      "machine (in a Slurm job `longhaul submit`)",
      ranks, each, rest);
}

std::vector<std::string> words_of_this_process() {
  std::vector<std::string> words = command_words("/proc/self");
  if (!words.empty()) words.erase(words.begin());
  return words;
}

}  // namespace

std::string check_launcher(const Environment& environment, const comm::Launch& launch,
                           const std::vector<std::string>& words) {
  if (launch.by_launcher) return {};
  const auto set = [&](const char* name) { return environment(name) != nullptr; };
  const bool elastic = set("TORCHELASTIC_RUN_ID");
  const bool local = set("LOCAL_RANK") && (set("RANK") || set("GROUP_RANK"));
  const int rank = number(environment, "RANK", 0);
  const int ranks = number(environment, "WORLD_SIZE", 1);
  const int tasks = number(environment, "SLURM_NTASKS", 1);
  const bool alone = !elastic && !local && rank <= 0 && ranks <= 1;
  // A supervisor starts `train` without srun if it wants one rank, so the number of
  // Slurm's tasks is no sign of a mistake.
  const bool chosen = set("LONGHAUL_SUPERVISOR") || words.empty() || words[0] != "train";
  if (tasks > 1 && alone && !chosen) {
    return fmt::format(
        "Slurm's job has {} tasks (SLURM_NTASKS), and srun did not start this process: "
        "it is a run of one rank. `srun --mpi=pmix longhaul ...` starts one rank for "
        "each task, and {} on this node",
        tasks, command_for(words, tasks, tasks));
  }
  if (!elastic && !local && rank <= 0) {
    if (ranks <= 1) return {};
    return fmt::format(
        "the environment says WORLD_SIZE={}, which longhaul does not read: this is a run "
        "of one rank; several are started by {}, and `env -u WORLD_SIZE` takes the "
        "variable away",
        ranks, command_for(words, ranks, number(environment, "LOCAL_WORLD_SIZE", ranks)));
  }
  const std::string who =
      elastic ? "torchrun started this process"
      : local
          ? "a launcher of PyTorch started this process"
          : fmt::format("the environment says RANK={}, and no MPI started this process",
                        rank);
  const int local_ranks =
      local || elastic ? number(environment, "LOCAL_WORLD_SIZE", ranks) : ranks;
  fail_config("launch",
              "{} (rank {} of {}): each such process would be a run of its own, since "
              "longhaul's ranks communicate over MPI; type {}{}",
              who, rank, ranks, command_for(words, std::max(ranks, 1), local_ranks),
              elastic || local ? ""
                               : ", or take RANK away (env -u RANK) where this run is "
                                 "meant to be alone");
}

void check_launcher() {
  const std::string warning =
      check_launcher(std::getenv, comm::detect_launch(), words_of_this_process());
  if (warning.empty()) return;
  fmt::print(stderr, "{} {}\n", system::warning_text("longhaul: warning:", STDERR_FILENO),
             system::printable(warning));
}

}  // namespace longhaul::apps
