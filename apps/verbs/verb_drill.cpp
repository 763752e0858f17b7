#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "apps/verbs.h"
#include "longhaul/base/error.h"
#include "longhaul/base/process.h"
#include "longhaul/cluster/slurm/batch_script.h"
#include "longhaul/cluster/slurm/job.h"
#include "longhaul/drill/live.h"
#include "longhaul/drill/small_runs.h"
#include "longhaul/drill/strike.h"

namespace longhaul::apps {
namespace {

struct DrillArguments {
  // The options of small runs that the drill makes itself.
  drill::SmallRunOptions small;
  std::vector<std::string> faults;
  int ranks = 2;
  int nodes = 0;
  int spares = 0;
  // The options of a drill on a run that trains already.
  std::string fault;
  drill::LiveDrillOptions live;
  // The options of the job step that a drill on another node starts here.
  bool on_node = false;
  int64_t process = 0;
  std::string job;
};

void print_table(const std::vector<drill::DrillResult>& results) {
  fmt::print("{:<18} {:<7} {:>8} {:>13} {:>7}  {}\n", "fault", "result", "at step",
             "to new step", "redone", "what the supervisor said");
  for (const drill::DrillResult& r : results) {
    fmt::print("{:<18} {:<7} {:>8} {:>11.1f} s {:>7}  {}\n", r.fault,
               r.passed() ? "ok" : "FAILED", r.at_step, r.seconds_to_new_step,
               r.steps_redone,
               r.survived && !r.same_losses
                   ? "other losses than the undisturbed run's; " + r.cause
                   : r.cause);
  }
}

/// Returns the command line that supervises a small run, here or on the nodes of this
/// job.
std::vector<std::string> supervisor_words(const DrillArguments& arguments,
                                          const fs::path& config) {
  if (arguments.nodes == 0) {
    return {this_program(), "launch", "-n", std::to_string(arguments.ranks),
            config.string()};
  }
  cluster::SuperviseCommand command;
  command.config = config.string();
  command.nodes = arguments.nodes;
  command.spares = arguments.spares;
  command.ranks_per_node = arguments.ranks;
  return cluster::supervise_words(this_program(), command);
}

/// Throws ConfigError, before anything is started, if this job has too few nodes for
/// the drill.
void check_job(const DrillArguments& arguments) {
  if (arguments.nodes == 0) {
    if (arguments.spares == 0) return;
    throw ConfigError("drill",
                      "--spares is for the nodes of a Slurm job; give --nodes as well");
  }
  const auto job = cluster::slurm_job();
  if (!job) {
    fail_config("drill",
                "--nodes is for a Slurm job, and this process is in none; submit a job: "
                "longhaul submit --nodes 3 -- drill --dir DIR --nodes 2 --spares 1");
  }
  const auto wanted = static_cast<size_t>(arguments.nodes + arguments.spares);
  if (job->nodes.size() < wanted) {
    fail_config("drill", "--nodes {} and --spares {} need {} nodes; this job has {}",
                arguments.nodes, arguments.spares, wanted, job->nodes.size());
  }
}

int drill_small(const DrillArguments& arguments) {
  const std::vector<drill::DrillFault> possible =
      arguments.nodes > 0 ? drill::faults_of_nodes(arguments.spares > 0)
                          : drill::faults_of_one_machine();
  std::vector<drill::DrillFault> faults;
  for (const std::string& name : arguments.faults) {
    faults.push_back(drill::drill_fault_of(name, possible));
  }
  if (faults.empty()) faults = possible;
  check_job(arguments);
  drill::SmallRunOptions options = arguments.small;
  options.ranks = arguments.ranks * std::max(1, arguments.nodes);
  // A start on several nodes takes longer.
  if (arguments.nodes > 0) options.hang_seconds = 20;
  options.command = [&](const fs::path& config) {
    return supervisor_words(arguments, config);
  };
  if (!arguments.live.json) {
    options.progress = [](const std::string& line) {
      fmt::print(stderr, "drill: {}\n", line);
    };
  }
  const auto results = drill::drill_small_runs(faults, options);
  if (arguments.live.json) {
    fmt::print("{}\n", json_text(Json(results), 1));
  } else {
    print_table(results);
  }
  const bool all =
      std::ranges::all_of(results, [](const auto& result) { return result.passed(); });
  return all ? 0 : 1;
}

int drill_live(const DrillArguments& arguments) {
  if (arguments.fault.empty() || arguments.live.rank < 0) {
    throw ConfigError(
        "drill",
        "name the fault and the rank that it hits, such as --fault kill-worker --rank 1");
  }
  const drill::DrillFault fault =
      drill::drill_fault_of(arguments.fault, drill::faults_of_live_runs());
  if (arguments.on_node) {
    drill::strike_here(arguments.live.run,
                       {fault, arguments.live.rank, arguments.process, arguments.job});
    return 0;
  }
  drill::LiveDrillOptions options = arguments.live;
  options.fault = fault;
  return drill::drill_live_run(options);
}

int drill(const DrillArguments& arguments) {
  const bool live = !arguments.live.run.empty();
  if (live != arguments.small.dir.empty()) {
    throw ConfigError("drill",
                      "name either a run that trains, with --fault and --rank, or with "
                      "--dir a new directory for small runs of the drill's own");
  }
  if (live ? !arguments.faults.empty() : !arguments.fault.empty()) {
    fail_config("drill",
                "--fault is for a run that trains, --faults for the small runs of --dir");
  }
  return live ? drill_live(arguments) : drill_small(arguments);
}

void add_small_options(CLI::App& verb, DrillArguments& arguments) {
  verb.add_option("--dir", arguments.small.dir,
                  "a new directory, on the file system that is to be tried");
  verb.add_option("--faults", arguments.faults,
                  "faults for the small runs: kill-worker, kill-workers, stop-worker, "
                  "kill-supervisor, terminate, damage-checkpoint, with --nodes also "
                  "kill-node, with --spares also mark-unhealthy; all by default")
      ->delimiter(',');
  verb.add_option("-n,--ranks", arguments.ranks,
                  "ranks of the small runs; with --nodes, ranks on each node")
      ->check(CLI::Range(1, 64));
  verb.add_option("--nodes", arguments.nodes,
                  "in a Slurm job: number of nodes that train in the small runs; without "
                  "it the small runs use this machine alone")
      ->check(CLI::Range(1, 1024));
  verb.add_option("--spares", arguments.spares,
                  "number of further nodes of the job, which replace lost nodes")
      ->check(CLI::Range(0, 1024));
  verb.add_option("--steps", arguments.small.steps, "steps of each small run")
      ->check(CLI::Range(20, 100'000));
  verb.add_option(
      "--seed", arguments.small.seed,
      "seed that chooses when a fault comes in a small run and which rank it hits");
}

void add_live_options(CLI::App& verb, DrillArguments& arguments) {
  verb.add_option("run", arguments.live.run,
                  "a supervised run that trains now: its directory or its configuration");
  verb.add_option("--fault", arguments.fault,
                  "fault for the run that trains: kill-worker, stop-worker, kill-node, "
                  "mark-unhealthy");
  verb.add_option("--rank", arguments.live.rank,
                  "rank that the fault hits; for a fault of a node, any rank of the node")
      ->check(CLI::Range(0, 1'000'000));
  verb.add_flag("--yes", arguments.live.yes, "inject the fault without asking first");
  verb.add_option("--wait", arguments.live.wait_seconds,
                  "seconds until the run must have come back; by default 600, plus "
                  "resilience.hang_timeout_s for stop-worker")
      ->check(CLI::Range(1.0, 86'400.0));
  verb.add_flag("--on-node", arguments.on_node)->group("");
  verb.add_option("--process", arguments.process)->group("");
  verb.add_option("--job", arguments.job)->group("");
}

}  // namespace

void add_drill(CLI::App& program, Outcome& outcome) {
  auto arguments = std::make_shared<DrillArguments>();
  CLI::App* verb = program.add_subcommand(
      "drill", "Injects faults, into small runs of its own or into a run that trains");
  add_live_options(*verb, *arguments);
  add_small_options(*verb, *arguments);
  verb->add_flag("--json", arguments->live.json, "machine-readable");
  verb->footer(
      "Examples:\n"
      "  longhaul drill --dir /fsx/drill\n"
      "  longhaul drill --dir /tmp/drill --faults kill-worker,stop-worker -n 4\n"
      "  longhaul submit --nodes 3 -- drill --dir /fsx/drill --nodes 2 --spares 1\n"
      "  longhaul drill runs/cpt --fault kill-worker --rank 3\n"
      "Each small run must end by itself with the losses of an undisturbed one, bit for\n"
      "bit; exit 1 where a run does not. A fault in a run that trains needs a yes. The "
      "drill\n"
      "then follows the run until it has done a new step (exit 0) or the time is over "
      "(exit 1).");
  verb->callback([arguments, &outcome] { outcome.exit_code = drill(*arguments); });
}

}  // namespace longhaul::apps
