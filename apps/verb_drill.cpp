#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "apps/supervision.h"
#include "apps/verbs.h"
#include "longhaul/base/error.h"
#include "longhaul/cluster/drill.h"

namespace longhaul::apps {
namespace {

struct DrillArguments {
  std::string dir;
  std::vector<std::string> faults;
  int ranks = 2;
  int64_t steps = 60;
  uint64_t seed = 1;
  bool json = false;
};

void print_table(const std::vector<cluster::DrillResult>& results) {
  fmt::print("{:<18} {:<7} {:>8} {:>13} {:>7}  {}\n", "fault", "result", "at step",
             "to next step", "redone", "what the supervisor said");
  for (const cluster::DrillResult& r : results) {
    fmt::print("{:<18} {:<7} {:>8} {:>11.1f} s {:>7}  {}\n", r.fault,
               r.passed() ? "ok" : "FAILED", r.at_step, r.seconds_to_next_step,
               r.steps_redone,
               r.survived && !r.same_losses ? "other losses than undisturbed; " + r.cause
                                            : r.cause);
  }
}

int drill(const DrillArguments& arguments) {
  std::vector<cluster::DrillFault> faults;
  for (const std::string& name : arguments.faults) {
    faults.push_back(cluster::drill_fault_of(name));
  }
  if (faults.empty()) faults = cluster::drill_faults();
  cluster::DrillOptions options;
  options.dir = arguments.dir;
  options.steps = arguments.steps;
  options.seed = arguments.seed;
  options.command = [&](const fs::path& config) {
    return std::vector<std::string>{this_program(), "launch", "-n",
                                    std::to_string(arguments.ranks), config.string()};
  };
  if (!arguments.json) {
    options.progress = [](const std::string& line) {
      fmt::print(stderr, "drill: {}\n", line);
    };
  }
  const auto results = cluster::run_drill(faults, options);
  if (arguments.json) {
    Json list = Json::array();
    for (const cluster::DrillResult& result : results) list.push_back(result.to_json());
    fmt::print("{}\n", list.dump(1));
  } else {
    print_table(results);
  }
  const bool all =
      std::ranges::all_of(results, [](const auto& result) { return result.passed(); });
  return all ? 0 : 1;
}

}  // namespace

void add_drill(CLI::App& program, Outcome& outcome) {
  auto arguments = std::make_shared<DrillArguments>();
  CLI::App* verb = program.add_subcommand(
      "drill", "Trains a small model on this machine and injects faults into it");
  verb->add_option("--dir", arguments->dir,
                   "a new directory, on the file system that is to be tried")
      ->required();
  verb->add_option("--faults", arguments->faults,
                   "kill-worker, kill-workers, stop-worker, kill-supervisor, terminate, "
                   "damage-checkpoint; all by default")
      ->delimiter(',');
  verb->add_option("-n,--ranks", arguments->ranks, "ranks")->check(CLI::Range(1, 64));
  verb->add_option("--steps", arguments->steps, "steps of each run")
      ->check(CLI::Range(20, 100'000));
  verb->add_option("--seed", arguments->seed,
                   "of the moments and the ranks that are hit");
  verb->add_flag("--json", arguments->json, "for programs");
  verb->footer(
      "Examples:\n"
      "  longhaul drill --dir /fsx/drill\n"
      "  longhaul drill --dir /tmp/drill --faults kill-worker,stop-worker -n 4\n"
      "Each run must end by itself with the losses of an undisturbed one, bit for bit.\n"
      "Exit 1 when one does not.");
  verb->callback([arguments, &outcome] { outcome.exit_code = drill(*arguments); });
}

}  // namespace longhaul::apps
