#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "apps/inputs/run_inputs.h"
#include "apps/node_choice.h"
#include "apps/program.h"
#include "apps/start/launch_ground.h"
#include "apps/start/other_launcher.h"
#include "apps/supervised_run.h"
#include "apps/verbs.h"
#include "apps/verbs/auto_layout.h"
#include "longhaul/base/clock.h"
#include "longhaul/base/error.h"
#include "longhaul/base/process.h"
#include "longhaul/base/refused.h"
#include "longhaul/cluster/agent/agent_fleet.h"
#include "longhaul/cluster/fleet/local_fleet.h"
#include "longhaul/cluster/fleet/ssh_hosts.h"
#include "longhaul/cluster/process/command.h"
#include "longhaul/cluster/process/passed_environment.h"
#include "longhaul/run/run_lock.h"
#include "longhaul/system/cpus.h"
#include "longhaul/system/open_files.h"

namespace longhaul::apps {
namespace {

struct LaunchOptions {
  std::string file;
  std::vector<std::string> sets;
  int ranks = 0;
  std::vector<std::string> mpirun;
  std::string hardware;  // machine of --hardware; empty: another place names it
  std::string hosts;
  int ranks_per_node = 0;
  std::string rehearse;  // the flag; empty: none was given
};

/// Returns the names of the environment variables that mpirun hands to workers on other
/// machines: those of the run, and those that a supervisor sets for its workers.
std::vector<std::string> exported(const std::vector<std::string>& variables) {
  std::set<std::string> names = {"LONGHAUL_RECORD_DIR",   "LONGHAUL_MEMORY_DIR",
                                 "LONGHAUL_SUPERVISOR",   "LONGHAUL_RESTART",
                                 run::kRunToFindVariable, kClockVariable};
  names.insert(variables.begin(), variables.end());
  return {names.begin(), names.end()};
}

/// Returns the first words of the command that starts `ranks` workers on this machine.
std::vector<std::string> start_words(const LaunchOptions& options, int ranks) {
  if (ranks == 1) return {};
  std::vector<std::string> words = {"mpirun", "-n", std::to_string(ranks)};
  if (static_cast<size_t>(ranks) > system::allowed_cpus().size()) {
    words.emplace_back("--oversubscribe");
  }
  words.insert(words.end(), options.mpirun.begin(), options.mpirun.end());
  return words;
}

/// How many open files mpirun needs by itself and for each rank, with some to spare.
constexpr size_t kMpirunFiles = 28;
constexpr size_t kRankFiles = 4;

constexpr const char* kNoMpirun =
    "install Open MPI (on Debian: apt install openmpi-bin) or load the cluster's module; "
    "one rank (-n 1) needs none";

/// Throws if mpirun is absent or if it would refuse every start: it runs as root
/// only with an option or variables that allow it.
void require_mpirun(const LaunchOptions& options) {
  cluster::require_program("mpirun", "launch", kNoMpirun);
  const auto told = [](const std::string& prefix) {
    const std::string name = prefix + "_ALLOW_RUN_AS_ROOT";
    return std::getenv(name.c_str()) != nullptr &&
           std::getenv((name + "_CONFIRM").c_str()) != nullptr;
  };
  const bool by_word =
      std::ranges::find(options.mpirun, "--allow-run-as-root") != options.mpirun.end();
  if (::geteuid() == 0 && !by_word && !told("OMPI") && !told("PRTE")) {
    throw ConfigError(
        "launch",
        "mpirun does not run as root; start longhaul as another user, or in a container "
        "set OMPI_ALLOW_RUN_AS_ROOT=1 and OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1");
  }
}

/// Has Open MPI 4.1 do without ssh and rsh, which it wants even if it starts ranks on
/// this machine alone.
void do_without_ssh() {
  if (cluster::has_program("ssh") || cluster::has_program("rsh")) return;
  if (std::getenv("OMPI_MCA_plm_rsh_agent") != nullptr) return;
  ::setenv("OMPI_MCA_plm", "isolated", 0);
}

/// Lets parallel.auto choose a layout for so many ranks, and takes it into the settings.
void choose_layout(LaunchOptions& options, LoadedConfig& loaded, int ranks,
                   int node_ranks) {
  const auto chosen = add_auto_layout(
      loaded.config,
      {.hardware = options.hardware, .ranks = ranks, .node_ranks = node_ranks},
      options.sets);
  if (!chosen) return;
  fmt::print("longhaul: {}\n", chosen->text);
  loaded = load_run_config(options.file, options.sets);
}

int launch_on_hosts(LaunchOptions options) {
  LoadedConfig loaded = load_run_config(options.file, options.sets);
  const std::vector<std::string> hosts = cluster::read_hosts(options.hosts);
  const int per_node =
      options.ranks_per_node > 0 ? options.ranks_per_node : ranks_of_this_node();
  const int most = static_cast<int>(hosts.size()) * per_node;
  const int ranks = options.ranks > 0 ? options.ranks : most;
  if (ranks % per_node != 0 || ranks > most) {
    fail_config("launch",
                "-n {} is no multiple of {} ranks a host on at most {} hosts; change -n, "
                "--hosts or --ranks-per-node",
                ranks, per_node, hosts.size());
  }
  choose_layout(options, loaded, ranks, per_node);
  check_before_start(loaded.config, ranks);
  require_mpirun(options);
  cluster::require_program("ssh", "launch",
                           "install ssh; longhaul reaches --hosts through it");
  check_launch_ground(/*over_ssh=*/true);
  // Other hosts find the libraries where this one does.
  std::vector<std::string> patterns = loaded.config.run.pass_environment;
  patterns.emplace_back("LD_LIBRARY_PATH");
  const std::vector<std::string> variables = cluster::passed_variables(patterns);
  cluster::tell_passed(variables);
  cluster::SupervisorOptions supervisor = supervisor_options(loaded.config, ranks);
  supervisor.other_nodes = true;
  supervisor.here = host_name();
  system::OwnerLock lease = cluster::take_supervision(supervisor.run_dir);
  cluster::AgentFleetOptions of_fleet;
  of_fleet.here = host_name();
  of_fleet.nodes = hosts;
  of_fleet.program = this_program();
  of_fleet.run_dir = fs::absolute(supervisor.run_dir);
  of_fleet.lease_number = lease.attempt();
  of_fleet.start_agent = [&](const std::string& host, std::vector<std::string> words,
                             const cluster::Secret& secret) {
    return cluster::start_agent_by_ssh(host, host_name(), std::move(words), secret,
                                       variables);
  };
  of_fleet.usable = [](const std::vector<std::string>& nodes) { return nodes; };
  cluster::AgentFleet fleet(std::move(of_fleet));
  StartLayouts layouts(loaded.config, options.sets, per_node);
  NodeChoice nodes(
      loaded.config, [&] { return fleet.usable_nodes(); }, ranks / per_node,
      [&](int64_t fewer) { return layouts.fits(fewer); });
  cluster::Launcher launcher;
  launcher.command = [&](const cluster::Attempt& attempt) {
    const std::vector<std::string> training = nodes.choose(attempt);
    std::vector<std::string> words =
        cluster::mpirun_words(training, per_node, exported(variables));
    words.insert(words.end(), options.mpirun.begin(), options.mpirun.end());
    return train_words(std::move(words),
                       settings_file(options.file, loaded.config.run.dir, options.sets,
                                     attempt.restart > 0),
                       layouts.on(std::ssize(training)), attempt, options.rehearse);
  };
  launcher.lacks_nodes = [&](const cluster::Attempt& attempt) {
    return nodes.lacks(attempt);
  };
  return run_supervisor(std::move(supervisor), std::move(launcher), fleet,
                        std::move(lease));
}

int launch(LaunchOptions options) {
  LoadedConfig loaded = load_run_config(options.file, options.sets);
  const int ranks = options.ranks > 0 ? options.ranks : ranks_of_this_node();
  choose_layout(options, loaded, ranks, ranks);
  check_before_start(loaded.config, ranks);
  if (ranks > 1) {
    require_mpirun(options);
    check_launch_ground(/*over_ssh=*/false);
    do_without_ssh();
    // mpirun needs 28 open files and 4 for each rank. Open MPI hangs if it gets fewer.
    system::need_open_files(kMpirunFiles + kRankFiles * static_cast<size_t>(ranks),
                            "launch", fmt::format("mpirun with {} ranks", ranks));
  }
  cluster::SupervisorOptions supervisor = supervisor_options(loaded.config, ranks);
  system::OwnerLock lease = cluster::take_supervision(supervisor.run_dir);
  cluster::LocalFleet fleet(host_name(), supervisor.directories);
  cluster::Launcher launcher;
  launcher.command = [&](const cluster::Attempt& attempt) {
    return train_words(start_words(options, ranks),
                       settings_file(options.file, loaded.config.run.dir, options.sets,
                                     attempt.restart > 0),
                       options.sets, attempt, options.rehearse);
  };
  return run_supervisor(std::move(supervisor), std::move(launcher), fleet,
                        std::move(lease));
}

}  // namespace

void add_launch(CLI::App& program, Outcome& outcome) {
  auto options = std::make_shared<LaunchOptions>();
  CLI::App* verb = program.add_subcommand("launch",
                                          "Trains with several ranks, on this machine or "
                                          "several, and restarts them after faults");
  verb->add_option("config", options->file, "configuration (TOML)")->required();
  verb->add_option(
          "-n,--ranks", options->ranks,
          "number of ranks; by default one per accelerator, else one per NUMA node")
      ->check(CLI::Range(1, 100'000));
  add_set_option(*verb, options->sets);
  add_rehearse_flags(*verb, options->rehearse);
  verb->add_option(
          "--mpirun", options->mpirun,
          "one more argument for mpirun; repeatable (--mpirun=--bind-to --mpirun=core)")
      ->allow_extra_args(false);
  verb->add_option("--hardware,--gpu", options->hardware,
                   "with parallel.auto: the machine that the layout is chosen for, as "
                   "longhaul plan takes it");
  verb->add_option("--hosts", options->hosts,
                   "hosts reached by ssh: n1,n2,n3, or a file with one host a line; "
                   "hosts that -n does not need are spares");
  verb->add_option("--ranks-per-node", options->ranks_per_node,
                   "with --hosts: ranks on each host; by default one per accelerator of "
                   "this machine, else one per NUMA node")
      ->check(CLI::Range(1, 4096));
  verb->footer(
      "Examples:\n"
      "  longhaul launch -n 2 run.toml\n"
      "  longhaul launch --hosts n1,n2,n3 --ranks-per-node 8 -n 16 run.toml\n"
      "  longhaul launch run.toml --set resilience.max_restarts=5\n"
      "Watches the ranks by the records that they write. When a rank dies, fails or "
      "hangs, all\n"
      "ranks are ended and started again from the newest checkpoint. A wrong setting is "
      "never\n"
      "retried. The same fault at the same step three times in a row ends the run. "
      "SIGTERM, Ctrl-C,\n"
      "SIGUSR1, SIGUSR2, SIGXCPU and a terminal that closes save and end (exit 75); a\n"
      "second Ctrl-C ends without a save. The file\n"
      "STOP in the run's directory saves and ends with 79, as stop_above of\n"
      "data.validation, run.expect and run.golden do. See docs/failures.md.");
  verb->callback([options, &outcome] {
    check_launcher();
    if (const auto limits = warning_of_limits(); !limits.empty()) say_warning(limits);
    outcome.exit_code =
        options->hosts.empty() ? launch(*options) : launch_on_hosts(*options);
  });
}

}  // namespace longhaul::apps
