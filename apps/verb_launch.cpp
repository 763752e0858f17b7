#include <fmt/format.h>

#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "apps/supervision.h"
#include "apps/verbs.h"
#include "longhaul/base/error.h"
#include "longhaul/base/process.h"
#include "longhaul/cluster/local_fleet.h"

namespace longhaul::apps {
namespace {

struct LaunchOptions {
  std::string file;
  std::vector<std::string> sets;
  int ranks = 0;
  std::vector<std::string> mpirun;
};

/// The words that start `ranks` workers on this machine.
std::vector<std::string> start_words(const LaunchOptions& options, int ranks) {
  if (ranks == 1) return {};
  std::vector<std::string> words = {"mpirun", "-n", std::to_string(ranks)};
  if (static_cast<unsigned>(ranks) > std::thread::hardware_concurrency()) {
    words.emplace_back("--oversubscribe");
  }
  words.insert(words.end(), options.mpirun.begin(), options.mpirun.end());
  return words;
}

int launch(const LaunchOptions& options) {
  const LoadedConfig loaded = load_run_config(options.file, options.sets);
  const int ranks = options.ranks > 0 ? options.ranks : ranks_of_this_node();
  cluster::SupervisorOptions supervisor = supervisor_options(loaded.config, ranks);
  cluster::LocalFleet fleet(host_name(), supervisor.directories);
  cluster::Launcher launcher;
  launcher.command = [&](const cluster::Attempt& attempt) {
    std::vector<std::string> words = start_words(options, ranks);
    for (std::string& word : train_words(options.file, options.sets, attempt)) {
      words.push_back(std::move(word));
    }
    return words;
  };
  return cluster::Supervisor(std::move(supervisor), std::move(launcher), fleet).run();
}

}  // namespace

void add_launch(CLI::App& program, Outcome& outcome) {
  auto options = std::make_shared<LaunchOptions>();
  CLI::App* verb = program.add_subcommand(
      "launch", "Trains with several ranks on this machine, and starts them again");
  verb->add_option("config", options->file, "configuration (TOML)")->required();
  verb->add_option("-n,--ranks", options->ranks,
                   "ranks; by default one per accelerator, else one per NUMA node")
      ->check(CLI::Range(1, 100'000));
  verb->add_option("--set", options->sets, "section.key=value, over the file; repeatable")
      ->allow_extra_args(false);
  verb->add_option("--mpirun", options->mpirun,
                   "one more word for mpirun; repeatable (--mpirun=--bind-to "
                   "--mpirun=core)")
      ->allow_extra_args(false);
  verb->footer(
      "Examples:\n"
      "  longhaul launch -n 2 run.toml\n"
      "  longhaul launch run.toml --set resilience.max_restarts=5\n"
      "Watches the ranks by their records. When one dies, fails or hangs, all are ended\n"
      "and started again from the newest checkpoint; a wrong setting is never retried,\n"
      "the same fault at the same step three times in a row ends the run. SIGTERM, "
      "Ctrl-C\n"
      "and SIGUSR1 save and end (exit 75). See docs/failures.md.");
  verb->callback([options, &outcome] { outcome.exit_code = launch(*options); });
}

}  // namespace longhaul::apps
