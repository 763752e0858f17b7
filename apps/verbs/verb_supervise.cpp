#include <fmt/format.h>

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <variant>
#include <vector>

#include "apps/node_choice.h"
#include "apps/program.h"
#include "apps/start/container_arguments.h"
#include "apps/supervised_run.h"
#include "apps/verbs.h"
#include "apps/verbs/auto_layout.h"
#include "longhaul/base/error.h"
#include "longhaul/base/exit_code.h"
#include "longhaul/base/failure.h"
#include "longhaul/base/json/jsonl.h"
#include "longhaul/base/process.h"
#include "longhaul/cluster/agent/agent_fleet.h"
#include "longhaul/cluster/process/passed_environment.h"
#include "longhaul/cluster/record/exclusions.h"
#include "longhaul/cluster/record/requeue_count.h"
#include "longhaul/cluster/slurm/batch_script.h"
#include "longhaul/cluster/slurm/elsewhere.h"
#include "longhaul/cluster/slurm/job.h"
#include "longhaul/cluster/slurm/requeue.h"
#include "longhaul/cluster/slurm/run_note.h"
#include "longhaul/cluster/slurm/slurm_nodes.h"
#include "longhaul/cluster/slurm/stand_in.h"
#include "longhaul/config/named_paths.h"
#include "longhaul/run/events.h"
#include "longhaul/run/files.h"
#include "longhaul/run/run_past.h"
#include "longhaul/system/signals.h"
#include "longhaul/system/stopwatch.h"
#include "longhaul/system/terminal.h"

namespace longhaul::apps {
namespace {

struct SuperviseArguments {
  cluster::SuperviseCommand command;
  bool requeue = false;    ///< requeue the job instead of supervising it
  std::string because;     ///< reason of the requeue; empty: the supervisor's note counts
  std::string stands_in;   ///< node of the supervisor that does not answer any more
  int replaces = 0;        ///< number of the lease of that supervisor
  bool again = false;      ///< an earlier supervisor of this script had the run
  std::string moved_from;  ///< node of the batch script, on which the run is missing
};

/// Seconds for which a start waits for a run that no node finds in its directory, since
/// the file system may be mounted late.
constexpr double kMountSeconds = 60.0;

/// Seconds for which a supervisor waits for the run's directory, if an earlier supervisor
/// of the same batch script had the run, and seconds between two looks.
constexpr double kDirectorySeconds = 600.0;
constexpr int kDirectoryLookSeconds = 5;

/// Takes the lease if the run's directory is here and can be written; else returns why
/// this is not possible.
std::variant<system::OwnerLock, std::string> try_again(const fs::path& run_dir) {
  try {
    if (!fs::exists(run_dir / run::kSupervisorLockFile)) return "the file is not there";
    return cluster::take_supervision(run_dir);
  } catch (const fs::filesystem_error& error) {
    return to_error(error).message();
  } catch (const Error& error) {
    if (error.area() != "file") throw;
    return error.message();
  }
}

/// Takes the run's supervision. Returns nothing if another supervisor has taken it. If an
/// earlier supervisor of this script had the run, this one waits for the lock in the
/// run's directory, which may be missing or empty on this node for a while. Returns
/// nothing if it waits in vain.
std::optional<system::OwnerLock> take_lease(const SuperviseArguments& arguments,
                                            const fs::path& run_dir) {
  if (!arguments.again) {
    return arguments.replaces == 0
               ? cluster::take_supervision(run_dir)
               : cluster::succeed_supervision(run_dir, arguments.replaces);
  }
  bool told = false;
  for (const system::Stopwatch watch; watch.seconds() < kDirectorySeconds;) {
    auto taken = try_again(run_dir);
    if (auto* lease = std::get_if<system::OwnerLock>(&taken)) return std::move(*lease);
    if (!std::exchange(told, true)) {
      fmt::print(
          stderr, "longhaul: {} cannot supervise the run any more and waits: {}: {}\n",
          host_name(), system::printable((run_dir / run::kSupervisorLockFile).string()),
          system::printable(std::get<std::string>(taken)));
    }
    std::this_thread::sleep_for(std::chrono::seconds(kDirectoryLookSeconds));
  }
  return std::nullopt;
}

/// Says why the job goes back to the queue, in the job's log and as an event of the run.
/// A supervisor that could make no start has written the event itself.
void tell_requeue(const fs::path& run_dir, const cluster::RequeueDecision& decision) {
  const std::string text = cluster::describe_reason(decision.why);
  fmt::print("longhaul: requeue: {}\n", text);
  if (decision.event_written) return;
  const auto say = [](const std::string& line) {
    fmt::print(stderr, "longhaul: {}\n", system::printable(line));
  };
  try {
    JsonLines(run_dir / run::kEventsFile, say)
        .append(run::event_line(run::RequeueEvent::kKind,
                                run::event_fields(run::RequeueEvent{text})));
  } catch (const std::exception& problem) {
    say(to_error(problem).what());
  }
}

/// Gives the job back to the queue. Slurm then ends this process.
int requeue(const SuperviseArguments& arguments, const fs::path& run_dir,
            int64_t checkpoint, const cluster::SlurmJob& job) {
  system::ignore_signals_until_exit();
  cluster::RequeueOptions options;
  options.job = job.id;
  options.run_dir = run_dir;
  options.nodes = static_cast<size_t>(arguments.command.nodes) +
                  static_cast<size_t>(arguments.command.spares);
  const cluster::RequeueDecision decision = cluster::count_requeue(
      run_dir, job.id, checkpoint, cluster::requeue_reason(arguments.because));
  if (!decision.allowed) {
    fmt::print("longhaul: error: [requeue] {}\n", system::printable(decision.reason));
    return kExitStopped;
  }
  tell_requeue(run_dir, decision);
  options.wait_seconds = decision.wait_seconds;
  const std::string told = cluster::requeue_without_excluded(
      options, cluster::patient(cluster::SlurmClient()));
  if (!told.empty()) fmt::print("{}\n", system::printable(told));
  return 0;
}

/// Returns the options of the fleet of the job's agents; `nodes` are the nodes that the
/// job has now.
cluster::AgentFleetOptions fleet_options(const SuperviseArguments& arguments,
                                         const cluster::SlurmJob& job,
                                         const std::vector<std::string>& nodes,
                                         const fs::path& run_dir,
                                         const cluster::SlurmClient& slurm) {
  cluster::AgentFleetOptions of_fleet;
  of_fleet.job = job.id;
  of_fleet.here = job.here;
  of_fleet.nodes = nodes;
  of_fleet.successors =
      cluster::succession_order(job.here, nodes, slurm.query_switches());
  of_fleet.usable = [&slurm, id = job.id](const std::vector<std::string>& asked) {
    return cluster::usable_nodes(slurm, id, asked);
  };
  of_fleet.program = this_program();
  of_fleet.run_dir = fs::absolute(run_dir);
  of_fleet.not_awaited.push_back(arguments.stands_in);
  for (const cluster::ExcludedNode& node :
       cluster::read_excluded(run_dir / run::kExcludedNodesFile)) {
    of_fleet.not_awaited.push_back(node.node);
  }
  of_fleet.stand_in = cluster::supervise_words(this_program(), arguments.command);
  of_fleet.stand_in.insert(of_fleet.stand_in.end(), {"--stands-in", job.here});
  of_fleet.start_agent = cluster::start_agent_step;
  of_fleet.agent_came = cluster::let_step_outlive_srun;
  return of_fleet;
}

/// Returns the container of the ranks. First makes the directories into which the run
/// writes: an absent directory cannot be mounted, and files that ranks write to the
/// container itself are lost with it.
cluster::Container ready_container(const cluster::SuperviseCommand& command,
                                   const RunConfig& config, const fs::path& records) {
  if (command.container.empty()) return {};
  for (const NamedPath& named : named_paths(config)) {
    if (named.use == PathUse::Writes) make_directories_durable(named.path);
  }
  cluster::Container container = container_of_run(command, config);
  // The directory of the ranks' records is mounted, too: the agent of each node makes it
  // and reads there what the ranks write.
  container.mounts.push_back(records);
  return container;
}

/// Returns the file of the run's settings. A supervisor that only goes on with a run may
/// take the run's own copy, since nobody waits there to mend a file that is wrong.
std::string settings_of(const SuperviseArguments& arguments, bool goes_on) {
  const cluster::SuperviseCommand& command = arguments.command;
  return settings_file(command.config, command.run_dir, command.sets, goes_on);
}
std::string settings_of(const SuperviseArguments& arguments) {
  return settings_of(arguments, arguments.again || !arguments.stands_in.empty() ||
                                    arguments.requeue || job_requeues() > 0);
}

fs::path run_dir_of(const SuperviseArguments& arguments) {
  const cluster::SuperviseCommand& command = arguments.command;
  if (!command.run_dir.empty()) return command.run_dir;
  return load_run_config(settings_of(arguments), command.sets).config.run.dir;
}

/// Returns whether the run's checkpoints are here, or may be in a mirror. Either is
/// enough to go on with the run, even if its directory is gone.
bool has_checkpoints_of(const SuperviseArguments& arguments, const std::string& run) {
  try {
    const RunConfig config =
        load_run_config(settings_of(arguments), arguments.command.sets).config;
    const fs::path dir = checkpoint_dir(config);
    return config.checkpoint.mirror ||
           (run::read_checkpoints_owner(dir) == run && cluster::newest_checkpoint(dir));
  } catch (const Error&) {
    return false;  // the settings may lie beside the run
  }
}

/// Returns why this node cannot supervise the run that the job has trained before it was
/// requeued; nothing if it can.
std::optional<std::string> why_not_here(const SuperviseArguments& arguments,
                                        const cluster::SlurmJob& job) {
  if (job.restarts == 0) return std::nullopt;
  const fs::path run_dir = run_dir_of(arguments);
  std::string run;
  try {
    run = cluster::missing_run(cluster::patient(cluster::SlurmClient()), job.id, run_dir);
  } catch (const Error& problem) {
    if (problem.area() != "file") throw;
    return problem.message();
  }
  if (run.empty() || has_checkpoints_of(arguments, run)) return std::nullopt;
  return fmt::format("job {} has trained run {} in {}, which {} does not show", job.id,
                     run, run_dir.string(), job.here);
}

/// Has another node of the job run this command. Returns that command's exit code;
/// nothing if no other node that was asked finds the run in its directory.
std::optional<int> supervise_elsewhere(const SuperviseArguments& arguments,
                                       const cluster::SlurmJob& job) {
  const system::SignalWatch signals;
  std::vector<std::string> words =
      cluster::supervise_words(this_program(), arguments.command);
  words.insert(words.end(), {"--moved-from", job.here});
  if (arguments.requeue) words.emplace_back("--requeue");
  if (!arguments.because.empty())
    words.insert(words.end(), {"--because", arguments.because});
  return cluster::run_elsewhere(cluster::patient(cluster::SlurmClient()), job, words,
                                [&] { return signals.raised(); });
}

/// Returns whether another node of the job may supervise the run in place of this node.
bool may_move(const SuperviseArguments& arguments, const cluster::SlurmJob& job) {
  return arguments.moved_from.empty() && arguments.stands_in.empty() &&
         !arguments.again && !arguments.command.platform_replaces_nodes &&
         job.nodes.size() > 1;
}

/// Returns an exit code if this node does not find the run in its directory and another
/// node has supervised it. Throws TemporaryError if no node finds the run that the job
/// has trained before it was requeued: the run does not begin anew by itself.
std::optional<int> look_for_run(const SuperviseArguments& arguments,
                                const cluster::SlurmJob& job) {
  auto problem = why_not_here(arguments, job);
  if (arguments.requeue && !problem) {
    // A supervisor has worked for the run since the job started, so its lock must be in
    // the run's directory.
    const fs::path lock = run_dir_of(arguments) / run::kSupervisorLockFile;
    std::error_code error;
    if (!fs::exists(lock, error))
      problem = fmt::format("{} does not show {}", job.here, lock.string());
  }
  if (!problem) return std::nullopt;
  if (!arguments.moved_from.empty()) return kExitNotHere;
  fmt::print(stderr, "longhaul: {}\n", system::printable(*problem));
  if (may_move(arguments, job)) {
    if (const auto there = supervise_elsewhere(arguments, job)) return there;
  }
  if (arguments.requeue) return std::nullopt;
  for (const system::Stopwatch watch; watch.seconds() < kMountSeconds;) {
    std::this_thread::sleep_for(std::chrono::seconds(kDirectoryLookSeconds));
    problem = why_not_here(arguments, job);
    if (!problem) return std::nullopt;
  }
  throw TemporaryError(
      "run directory",
      *problem +
          ", nor does any other node that was asked. The run does not begin anew by "
          "itself: mount the directory, and the job tries again; a new job begins anew");
}

/// Takes the lease, and tries another node if this one cannot write what the run needs.
/// Returns an exit code in place of the lease if another node has done the work, or if
/// another supervisor has the run.
std::variant<system::OwnerLock, int> take_or_move(const SuperviseArguments& arguments,
                                                  const fs::path& run_dir,
                                                  const cluster::SlurmJob& job) {
  try {
    if (auto taken = take_lease(arguments, run_dir)) return std::move(*taken);
    return kExitSuperseded;
  } catch (const Error& problem) {
    if (problem.area() != "file") throw;
    if (!arguments.moved_from.empty()) return kExitNotHere;
    if (!may_move(arguments, job)) throw;
    fmt::print(stderr, "longhaul: {}: {}\n", job.here,
               system::printable(problem.message()));
    if (const auto there = supervise_elsewhere(arguments, job)) return *there;
    throw;
  }
}

int requeue(const SuperviseArguments& arguments, const cluster::SlurmJob& job) {
  SuperviseArguments told = arguments;
  const fs::path run_dir = run_dir_of(arguments);
  int64_t newest = 0;
  try {
    const LoadedConfig loaded =
        load_run_config(settings_of(arguments), arguments.command.sets);
    newest = cluster::newest_checkpoint(checkpoint_dir(loaded.config)).value_or(0);
  } catch (const Error&) {
    // If the command names the run's directory, settings that cannot be read do not
    // prevent the requeue. It counts as one without a newer checkpoint.
    if (arguments.command.run_dir.empty()) throw;
  }
  if (told.because.empty() && why_not_here(arguments, job))
    told.because = cluster::reason_name(cluster::RequeueReason::Storage);
  return requeue(told, run_dir, newest, job);
}

int supervise_here(const SuperviseArguments& arguments, const cluster::SlurmJob& job,
                   const LoadedConfig& loaded, system::OwnerLock lease);

int supervise(const SuperviseArguments& arguments) {
  const cluster::SuperviseCommand& command = arguments.command;
  const auto job = cluster::slurm_job();
  if (!job) {
    throw ConfigError("supervise",
                      "this is no Slurm job; submit one with longhaul "
                      "submit, or use longhaul launch on one machine");
  }
  // The lease is taken before anything else, because another supervisor may work for the
  // run. If the run has begun, the lease also comes before the settings are read. A node
  // on which the run's directory is missing may not have the settings either, and must
  // not end the job for that.
  const bool begun = arguments.again || !arguments.stands_in.empty();
  std::optional<system::OwnerLock> lease;
  if (begun && !command.run_dir.empty()) {
    if (auto taken = take_lease(arguments, command.run_dir))
      lease.emplace(std::move(*taken));
    if (!lease) return kExitSuperseded;
  } else if (!begun) {
    if (const auto exit_code = look_for_run(arguments, *job)) return *exit_code;
  }
  if (arguments.requeue) return requeue(arguments, *job);
  const LoadedConfig loaded = load_run_config(settings_of(arguments), command.sets);
  if (!job->step.empty()) cluster::forget_step_environment();
  if (!lease) {
    auto taken = take_or_move(arguments, loaded.config.run.dir, *job);
    if (const int* exit_code = std::get_if<int>(&taken)) return *exit_code;
    lease.emplace(std::move(std::get<system::OwnerLock>(taken)));
  }
  const int exit_code = supervise_here(arguments, *job, loaded, std::move(*lease));
  if (!arguments.moved_from.empty() && exit_code != kExitNotHere &&
      exit_code != kExitSuperseded) {
    cluster::StandInOptions script;
    script.job = job->id;
    script.words = cluster::supervise_words(this_program(), command);
    script.log = fmt::format("{}/slurm-{}.log", loaded.config.run.dir.string(), job->id);
    cluster::end_for_lost_script(script, cluster::SlurmClient(), exit_code);
  }
  if (exit_code != kExitNotHere || !may_move(arguments, *job)) return exit_code;
  return supervise_elsewhere(arguments, *job).value_or(kExitTemporary);
}

/// Returns those of the job's nodes that have booted. Throws TemporaryError if a signal
/// asks the job to end before that, since nothing has begun.
std::vector<std::string> await_boot(const cluster::SlurmClient& slurm,
                                    const cluster::SlurmJob& job,
                                    const std::vector<std::string>& nodes,
                                    const RunConfig& config, std::function<void()> turn) {
  const system::SignalWatch signals;
  cluster::BootPatience patience;
  patience.seconds = config.resilience.node_boot_s;
  patience.turn = std::move(turn);
  patience.stop = [&] { return signals.raised() != 0; };
  std::vector<std::string> booted = cluster::await_boot(slurm, job.id, nodes, patience);
  if (signals.raised() == 0) return booted;
  fail_temporary("supervise", "{} came before the nodes had booted",
                 system::signal_name(signals.raised()));
}

int supervise_here(const SuperviseArguments& arguments, const cluster::SlurmJob& job,
                   const LoadedConfig& loaded, system::OwnerLock lease) {
  const cluster::SuperviseCommand& command = arguments.command;
  const cluster::SlurmClient hasty;
  const cluster::SlurmClient slurm = cluster::patient(hasty, lease.heart());
  const int per_node =
      command.ranks_per_node > 0 ? command.ranks_per_node : ranks_of_this_node();
  StartLayouts layouts(loaded.config, command.sets, per_node);
  // A layout that cannot be chosen ends the job before anything is started.
  layouts.on(command.nodes);
  cluster::tell_passed(cluster::passed_variables(loaded.config.run.pass_environment));
  cluster::SupervisorOptions options =
      supervisor_options(loaded.config, command.nodes * per_node);
  options.job = job.id;
  options.other_nodes = true;
  options.here = job.here;
  options.resume_first = job.restarts > 0 || !arguments.stands_in.empty();
  options.may_move = may_move(arguments, job);
  options.lost_node = arguments.stands_in;
  options.rules.node_faults = !command.platform_replaces_nodes;
  cluster::StepKiller killer;
  const std::vector<cluster::StepStatus> steps = slurm.query_steps(job.id);
  killer.kill(cluster::steps_named(steps, job, cluster::kWorkerStep));
  // The agents of an earlier supervisor are ended when this supervisor's own agents are
  // there. Until then the old agents could take over if this supervisor were lost as
  // well.
  std::vector<std::string> old_agents =
      cluster::steps_named(steps, job, cluster::kAgentStep);
  std::vector<std::string> given = job.nodes;
  if (const auto now = slurm.query_job(job.id)) {
    given = now->nodes;
    // Slurm sends its signal before the time limit to the batch script. A supervisor that
    // stands in for another one, or was moved to this node, may have lost the script, so
    // it watches the time itself.
    if (!arguments.stands_in.empty() || !arguments.moved_from.empty()) {
      options.stop_after_seconds = now->seconds_left - command.signal_seconds;
    }
  }
  given = await_boot(slurm, job, given, loaded.config, lease.heart());
  cluster::AgentFleetOptions of_fleet =
      fleet_options(arguments, job, given, options.run_dir, slurm);
  of_fleet.lease_number = lease.attempt();
  cluster::AgentFleet fleet(std::move(of_fleet));
  NodeChoice nodes(
      loaded.config, [&] { return fleet.usable_nodes(); }, command.nodes,
      [&](int64_t fewer) { return layouts.fits(fewer); });
  cluster::Launcher launcher;
  const cluster::Container container =
      ready_container(command, loaded.config, options.directories.root);
  launcher.command = [&](const cluster::Attempt& attempt) {
    const std::vector<std::string> training = nodes.choose(attempt);
    std::vector<std::string> words =
        cluster::worker_step_words(training, job.nodes, per_node, container);
    killer.kill(std::exchange(old_agents, {}));
    return train_words(
        std::move(words),
        attempt.restart > 0 ? settings_of(arguments, true) : settings_of(arguments),
        layouts.on(std::ssize(training)), attempt, command.rehearse,
        command.container_program);
  };
  launcher.lacks_nodes = [&](const cluster::Attempt& attempt) {
    return nodes.lacks(attempt);
  };
  launcher.clean_up = [&] {
    try {
      killer.kill(
          cluster::steps_named(hasty.query_steps(job.id), job, cluster::kWorkerStep));
    } catch (const TemporaryError&) {
      // Slurm's controller does not answer, as during its restart. The agents have killed
      // the workers in any case.
    }
  };
  return run_supervisor(std::move(options), std::move(launcher), fleet, std::move(lease));
}

}  // namespace

void add_supervise(CLI::App& program, Outcome& outcome) {
  auto arguments = std::make_shared<SuperviseArguments>();
  CLI::App* verb = program.add_subcommand(
      "supervise",
      "Trains on the nodes of this Slurm job, and restarts the ranks after faults");
  verb->add_option("config", arguments->command.config, "configuration (TOML)")
      ->required();
  verb->add_option("--nodes", arguments->command.nodes, "number of nodes that train")
      ->required()
      ->check(CLI::Range(1, 65'536));
  verb->add_option(
      "--spares", arguments->command.spares,
      "number of the job's nodes that wait to take the place of a lost node");
  verb->add_option(
      "--ranks-per-node", arguments->command.ranks_per_node,
      "ranks on each node; by default one per accelerator, else one per NUMA node");
  add_set_option(*verb, arguments->command.sets);
  add_rehearse_flags(*verb, arguments->command.rehearse);
  add_container_options(*verb, arguments->command);
  verb->add_flag("--platform-replaces-nodes", arguments->command.platform_replaces_nodes,
                 "the platform replaces failed nodes (HyperPod's auto-resume): longhaul "
                 "restarts the ranks only after faults of processes");
  verb->add_option("--signal-seconds", arguments->command.signal_seconds,
                   "seconds before the job's time limit at which the run saves and ends, "
                   "where an agent's supervisor has replaced a lost batch script")
      ->check(CLI::Range(1, 86400));
  verb->add_option(
      "--stands-in", arguments->stands_in,
      "node whose supervisor this one replaces; only agents give this option");
  verb->add_option("--replaces", arguments->replaces,
                   "with --stands-in: the number of the lease that has run out");
  verb->add_option("--run-dir", arguments->command.run_dir,
                   "the run's directory; its copy of the settings is used where the "
                   "configuration file no longer exists");
  verb->add_flag("--again", arguments->again,
                 "an earlier supervisor of this batch script had the run, so the run's "
                 "directory must exist");
  verb->add_option("--moved-from", arguments->moved_from,
                   "node of the batch script, which does not show the run; only a "
                   "supervisor gives this option");
  verb->add_flag(
      "--requeue", arguments->requeue,
      "only gives the job back to the queue, and has Slurm leave out the nodes "
      "that the run has excluded");
  verb->add_option("--because", arguments->because,
                   "with --requeue, the reason: signal, host, done, storage or crash; by "
                   "default the reason that the supervisor noted");
  verb->footer(
      "Examples:\n"
      "  longhaul supervise run.toml --nodes 4 --spares 1      # in a batch script\n"
      "longhaul submit writes that script. Exit 75: the run has saved, or too few\n"
      "nodes are left; give the job back to the queue. After exit 79 (the file STOP, or "
      "a rule of\n"
      "the run) do not. See docs/failures.md.");
  verb->callback([arguments, &outcome] { outcome.exit_code = supervise(*arguments); });
}

}  // namespace longhaul::apps
