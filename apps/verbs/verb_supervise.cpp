#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdio>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "apps/node_choice.h"
#include "apps/supervised_run.h"
#include "apps/verbs/verbs.h"
#include "longhaul/base/error.h"
#include "longhaul/base/exit_code.h"
#include "longhaul/base/process.h"
#include "longhaul/cluster/agent/agent_fleet.h"
#include "longhaul/cluster/record/exclusions.h"
#include "longhaul/cluster/record/requeue_count.h"
#include "longhaul/cluster/slurm/batch_script.h"
#include "longhaul/cluster/slurm/job.h"
#include "longhaul/cluster/slurm/requeue.h"
#include "longhaul/cluster/slurm/slurm_nodes.h"
#include "longhaul/cluster/slurm/stand_in.h"
#include "longhaul/run/files.h"
#include "longhaul/system/signals.h"
#include "longhaul/system/terminal.h"

namespace longhaul::apps {
namespace {

constexpr double kControllerSeconds = 1800.0;

struct SuperviseArguments {
  cluster::SuperviseCommand command;
  bool requeue = false;   ///< instead of supervising
  std::string because;    ///< of the requeue; empty: the supervisor's note
  std::string stands_in;  ///< for the supervisor of this node, which does not answer
  int replaces = 0;       ///< the number of its lease
};

/// Chooses nodes for a start and says how srun puts workers on them.
class SlurmStart {
 public:
  SlurmStart(const SuperviseArguments& arguments, const RunConfig& config,
             cluster::AgentFleet& fleet, int ranks_per_node, std::vector<std::string> all)
      : arguments_(arguments),
        all_(std::move(all)),
        nodes_(config, fleet, arguments.command.nodes, ranks_per_node),
        ranks_per_node_(ranks_per_node) {}

  bool lacks_nodes(const cluster::Attempt& attempt) { return nodes_.lacks(attempt); }

  std::vector<std::string> command(const cluster::Attempt& attempt) {
    std::vector<std::string> nodes = nodes_.choose(attempt);
    // Slurm numbers a step's nodes in the allocation's order.
    std::map<std::string, size_t> places;
    for (const std::string& node : all_) places.emplace(node, places.size());
    std::ranges::sort(nodes, {}, [&](const std::string& node) {
      const auto place = places.find(node);
      return place == places.end() ? places.size() : place->second;
    });
    const auto count = static_cast<int>(nodes.size());
    // Slurm's PMIx looks for a rank's node by its place in the step and in the job's list
    // of nodes alike. Where the two differ, as after a spare has taken a place, some
    // starts ask a wrong node for an address and wait for ever; so the step is told of
    // its nodes alone.
    const std::string list = fmt::format("{}", fmt::join(nodes, ","));
    std::vector<std::string> words = {
        "env",
        "SLURM_JOB_NODELIST=" + list,
        "SLURM_NODELIST=" + list,
        "srun",
        "--overlap",
        "--mpi=pmix",
        fmt::format("--nodes={}", count),
        fmt::format("--ntasks={}", count * ranks_per_node_),
        fmt::format("--ntasks-per-node={}", ranks_per_node_),
        "--nodelist=" + list,
        fmt::format("--job-name={}", cluster::kWorkerStep),
        "--kill-on-bad-exit=0"};
    if (!arguments_.command.container.empty()) {
      words.push_back("--container-image=" + arguments_.command.container);
    }
    for (std::string& word :
         train_words(arguments_.command.config, arguments_.command.sets, attempt)) {
      words.push_back(std::move(word));
    }
    return words;
  }

 private:
  const SuperviseArguments& arguments_;
  std::vector<std::string> all_;
  NodeChoice nodes_;
  int ranks_per_node_;
};

/// Without the controller no step can be started or ended and no job requeued, and the
/// allocation stays: what needs one waits.
cluster::SlurmClient patient(const cluster::SlurmClient& slurm,
                             std::function<void()> turn = {}) {
  cluster::SlurmPatience patience;
  patience.seconds = kControllerSeconds;
  patience.tell = [](const std::string& line) {
    fmt::print("longhaul: {}\n", printable(line));
    std::fflush(stdout);
  };
  patience.turn = std::move(turn);
  return slurm.waiting(std::move(patience));
}

/// Gives the job back to the queue. Slurm ends this process for it.
int requeue(const SuperviseArguments& arguments, const RunConfig& config,
            const cluster::SlurmJob& job) {
  ignore_signals_until_exit();
  cluster::RequeueOptions options;
  options.job = job.id;
  options.run_dir = config.run.dir;
  options.nodes = static_cast<size_t>(arguments.command.nodes) +
                  static_cast<size_t>(arguments.command.spares);
  const cluster::RequeueDecision decision = cluster::count_requeue(
      config.run.dir, job.id,
      cluster::newest_checkpoint(checkpoint_dir(config)).value_or(0),
      cluster::requeue_reason(arguments.because));
  if (!decision.allowed) {
    fmt::print("longhaul: error: [requeue] {}\n", printable(decision.reason));
    return kExitStopped;
  }
  options.wait_seconds = decision.wait_seconds;
  const std::string told =
      cluster::requeue_without_excluded(options, patient(cluster::SlurmClient()));
  if (!told.empty()) fmt::print("{}\n", printable(told));
  return 0;
}

/// What is known of the job's agents before anybody is asked.
cluster::AgentFleetOptions fleet_options(const SuperviseArguments& arguments,
                                         const cluster::SlurmJob& job,
                                         const fs::path& run_dir) {
  cluster::AgentFleetOptions of_fleet;
  of_fleet.job = job.id;
  of_fleet.here = job.here;
  of_fleet.nodes = job.nodes;
  of_fleet.program = this_program();
  of_fleet.run_dir = fs::absolute(run_dir);
  of_fleet.not_awaited.push_back(arguments.stands_in);
  for (const cluster::ExcludedNode& node :
       cluster::read_excluded(run_dir / kExcludedNodesFile)) {
    of_fleet.not_awaited.push_back(node.node);
  }
  of_fleet.stand_in = cluster::supervise_words(this_program(), arguments.command);
  of_fleet.stand_in.insert(of_fleet.stand_in.end(), {"--stands-in", job.here});
  of_fleet.start_agent = cluster::start_agent_step;
  of_fleet.agent_came = cluster::let_step_outlive_srun;
  return of_fleet;
}

int supervise(const SuperviseArguments& arguments) {
  const cluster::SuperviseCommand& command = arguments.command;
  const LoadedConfig loaded = load_run_config(command.config, command.sets);
  const auto job = cluster::slurm_job();
  if (!job) {
    throw ConfigError("supervise",
                      "this is no Slurm job; submit one with longhaul "
                      "submit, or use longhaul launch on one machine");
  }
  if (arguments.requeue) return requeue(arguments, loaded.config, *job);
  if (!job->step.empty()) cluster::forget_step_environment();
  // Before anything else is done for the run: another one may do it.
  const fs::path run_dir = loaded.config.run.dir;
  std::optional<OwnerLock> lease =
      arguments.replaces == 0 ? cluster::take_supervision(run_dir)
                              : cluster::succeed_supervision(run_dir, arguments.replaces);
  if (!lease) return kExitSuperseded;
  const cluster::SlurmClient hasty;
  const cluster::SlurmClient slurm = patient(hasty, lease->heart());
  const int per_node =
      command.ranks_per_node > 0 ? command.ranks_per_node : ranks_of_this_node();
  cluster::SupervisorOptions options =
      supervisor_options(loaded.config, command.nodes * per_node);
  options.job = job->id;
  options.other_nodes = true;
  options.directories = cluster::node_directories(options.run_dir, job->id);
  options.resume_first = job->restarts > 0 || !arguments.stands_in.empty();
  options.lost_node = arguments.stands_in;
  options.rules.node_faults = !command.platform_replaces_nodes;
  cluster::StepKiller killer;
  const std::vector<cluster::StepStatus> steps = slurm.query_steps(job->id);
  killer.kill(cluster::steps_named(steps, *job, cluster::kWorkerStep));
  // Ended when this supervisor's own agents are there: until then they are those who take
  // over should it be lost as well.
  std::vector<std::string> old_agents =
      cluster::steps_named(steps, *job, cluster::kAgentStep);
  cluster::AgentFleetOptions of_fleet = fleet_options(arguments, *job, options.run_dir);
  if (const auto now = slurm.query_job(job->id)) {
    of_fleet.nodes = now->nodes;
    // The signal before the time limit goes to a batch script that is no more.
    if (!arguments.stands_in.empty()) {
      options.stop_after_seconds = now->seconds_left - command.signal_seconds;
    }
  }
  of_fleet.lease_number = lease->attempt();
  of_fleet.successors =
      cluster::succession_order(job->here, of_fleet.nodes, slurm.query_switches());
  of_fleet.usable = [&](const std::vector<std::string>& nodes) {
    return cluster::usable_nodes(slurm, job->id, nodes);
  };
  cluster::AgentFleet fleet(std::move(of_fleet));
  SlurmStart start(arguments, loaded.config, fleet, per_node, job->nodes);
  cluster::Launcher launcher;
  launcher.command = [&](const cluster::Attempt& attempt) {
    std::vector<std::string> words = start.command(attempt);
    killer.kill(std::exchange(old_agents, {}));
    return words;
  };
  launcher.lacks_nodes = [&](const cluster::Attempt& attempt) {
    return start.lacks_nodes(attempt);
  };
  launcher.clean_up = [&] {
    try {
      killer.kill(
          cluster::steps_named(hasty.query_steps(job->id), *job, cluster::kWorkerStep));
    } catch (const TemporaryError&) {
      // slurmctld is being started again: the workers were killed by their agents.
    }
  };
  return run_supervisor(std::move(options), std::move(launcher), fleet,
                        std::move(*lease));
}

}  // namespace

void add_supervise(CLI::App& program, Outcome& outcome) {
  auto arguments = std::make_shared<SuperviseArguments>();
  CLI::App* verb = program.add_subcommand(
      "supervise", "Trains on the nodes of this Slurm job, and starts the ranks again");
  verb->add_option("config", arguments->command.config, "configuration (TOML)")
      ->required();
  verb->add_option("--nodes", arguments->command.nodes, "nodes that train")
      ->required()
      ->check(CLI::Range(1, 65'536));
  verb->add_option("--spares", arguments->command.spares,
                   "nodes of the job that wait to take a lost one's place");
  verb->add_option("--ranks-per-node", arguments->command.ranks_per_node,
                   "by default one per accelerator, else one per NUMA node");
  verb->add_option("--set", arguments->command.sets,
                   "section.key=value, over the file; repeatable")
      ->allow_extra_args(false);
  verb->add_option("--container", arguments->command.container,
                   "image for the workers (pyxis)");
  verb->add_flag("--platform-replaces-nodes", arguments->command.platform_replaces_nodes,
                 "node faults are the platform's to mend (HyperPod's auto-resume): only "
                 "process faults are restarted here");
  verb->add_option("--signal-seconds", arguments->command.signal_seconds,
                   "how long before the job's time limit a supervisor that stands in "
                   "for the batch script saves and ends")
      ->check(CLI::Range(1, 86400));
  verb->add_option("--stands-in", arguments->stands_in,
                   "started by an agent in place of the supervisor of this node");
  verb->add_option("--replaces", arguments->replaces,
                   "with --stands-in: the number of the lease that has run out");
  verb->add_flag(
      "--requeue", arguments->requeue,
      "only gives the job back to the queue, and has Slurm leave out the nodes "
      "that the run has excluded");
  verb->add_option("--because", arguments->because,
                   "with --requeue: signal, host, done, storage or crash; without it "
                   "what the supervisor noted");
  verb->footer(
      "Examples:\n"
      "  longhaul supervise run.toml --nodes 4 --spares 1      # in a batch script\n"
      "longhaul submit writes that script. Exit 75: saved, or too few nodes are left;\n"
      "give the job back to the queue, but not after 79 (the file STOP, stop_above). See "
      "docs/failures.md.");
  verb->callback([arguments, &outcome] { outcome.exit_code = supervise(*arguments); });
}

}  // namespace longhaul::apps
