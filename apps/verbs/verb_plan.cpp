#include <fmt/format.h>
#include <fmt/ranges.h>

#include <memory>
#include <string>
#include <vector>

#include "apps/inputs/checked_run.h"
#include "apps/inputs/looked_data.h"
#include "apps/program.h"
#include "apps/verbs.h"
#include "apps/verbs/auto_layout.h"
#include "apps/verbs/planned_run.h"
#include "apps/verbs/searched_run.h"
#include "longhaul/base/error.h"
#include "longhaul/objects/access.h"
#include "longhaul/plan/device_memory.h"

namespace longhaul::apps {
namespace {

struct PlanCall {
  std::string file;
  std::vector<std::string> sets;
  int64_t ranks = 0;  // 0: not given
  int64_t nodes = 0;
  int64_t ranks_per_node = 0;
  std::string hardware;
  double failure_hours = 0.0;
  double restart_s = kRestartSeconds;
  int64_t spares = 0;
  double replace_hours = -1.0;  // below 0: not given
  double imbalance = 1.0;
  double price = -1.0;
  bool look = false;
  bool json = false;
  bool search = false;
  SearchCall searched;
};

int run_search(const PlanCall& options, const PlannedOn& on) {
  const CheckedRun run = check_run(options.file, options.sets, 0);
  check_planned(run);
  const SearchedLayouts searched = search_run(run, on, options.searched);
  say_planned_warnings(run);
  if (options.json) {
    fmt::print("{}\n", json_text(search_json(searched), 2));
  } else {
    print_search(searched);
  }
  return 0;
}

int run_plan(const PlanCall& options, const objects::Access& objects) {
  if (options.hardware.empty()) {
    fail_input("plan", "give --hardware NAME or FILE; known: {}",
               fmt::join(known_machines(), ", "));
  }
  PlannedOn on{options.hardware, machine_profile(options.hardware, options.price)};
  on.node_ranks =
      options.ranks_per_node > 0 ? options.ranks_per_node : on.profile.node.ranks;
  on.ranks = options.nodes > 0 ? options.nodes * on.node_ranks : options.ranks;
  if (on.ranks == 0) fail_input("plan", "give --ranks N or --nodes N");
  on.nodes = (on.ranks + on.node_ranks - 1) / on.node_ranks;
  on.restart_s = options.restart_s;
  on.failure_hours = {plan::kFewestFailureHours, plan::kMostFailureHours};
  if (options.failure_hours > 0.0) on.failure_hours = {options.failure_hours};
  on.imbalance = options.imbalance;
  on.spares = options.spares;
  if (options.replace_hours >= 0.0) on.replace_s = 3600.0 * options.replace_hours;
  if (options.search) return run_search(options, on);
  const std::vector<std::string> sets = with_auto_layout(
      options.file, options.sets, {options.hardware, on.nodes, on.ranks, on.node_ranks});
  const CheckedRun run = check_run(options.file, sets, on.ranks);
  check_planned(run);
  if (on.imbalance > 1.0 && !plan::has_experts(run.model->description)) {
    fail_input("plan", "--imbalance is of loads of experts, and the model of {} has none",
               run.loaded.config.model.config.string());
  }
  if (options.look) on.looked = look_at_data(run.loaded.config, *objects.store());
  const PlannedFigures planned(run, on);
  say_planned_warnings(run);
  if (options.json) {
    fmt::print("{}\n", json_text(plan_json(planned), 2));
  } else {
    print_plan(planned);
  }
  return 0;
}

/// Adds the options that --search does not take, and returns them.
std::vector<CLI::Option*> add_options_of_one_layout(CLI::App& verb, PlanCall& options) {
  CLI::Option* replace = verb.add_option(
      "--replace-hours", options.replace_hours,
      "mean hours until another node is there for a lost one (default: at once)");
  replace->check(CLI::NonNegativeNumber);
  CLI::Option* spares =
      verb.add_option("--spares", options.spares,
                      "nodes beside --nodes that wait to take the place of a lost node")
          ->check(CLI::Range(0, 100'000))
          ->needs(replace);
  CLI::Option* imbalance = verb.add_option(
      "--imbalance", options.imbalance,
      "also tell the memory of a rank whose experts get so many times the even rows");
  imbalance->check(CLI::Range(1.0, 1e6));
  CLI::Option* look =
      verb.add_flag("--look", options.look,
                    "ask the object store how large the run's data is; nothing else "
                    "sends requests");
  return {replace, spares, imbalance, look};
}

}  // namespace

void add_plan(CLI::App& program, Outcome& outcome) {
  const auto options = std::make_shared<PlanCall>();
  CLI::App* verb = program.add_subcommand(
      "plan",
      "What a run takes on a machine that need not be here: memory, time, money, "
      "storage, and what failures cost");
  verb->add_option("file", options->file, "the run's TOML file")->required();
  add_set_option(*verb, options->sets, "; section.key= removes the key");
  CLI::Option* ranks = verb->add_option("--ranks", options->ranks, "number of ranks")
                           ->check(CLI::Range(1, 1'000'000));
  verb->add_option("--nodes", options->nodes, "number of nodes, in place of --ranks")
      ->check(CLI::Range(1, 100'000))
      ->excludes(ranks);
  verb->add_option("--ranks-per-node", options->ranks_per_node,
                   "ranks on each node (default: the devices of the machine's node)")
      ->check(CLI::Range(1, 4096));
  verb->add_option("--hardware,--gpu", options->hardware,
                   "a machine that comes along (a wrong name lists them), or the file of "
                   "a profile");
  verb->add_option("--failure-hours", options->failure_hours,
                   fmt::format("mean hours of one node between failures (default: both "
                               "{} and {}, the range of published clusters)",
                               plan::kFewestFailureHours, plan::kMostFailureHours))
      ->check(CLI::PositiveNumber);
  verb->add_option("--restart-s", options->restart_s,
                   "seconds from a failure until training goes on, without the read of "
                   "the checkpoint")
      ->capture_default_str()
      ->check(CLI::NonNegativeNumber);
  verb->add_option("--price", options->price,
                   "what a node costs an hour, in place of the profile's price; 0: money "
                   "is not counted")
      ->check(CLI::NonNegativeNumber);
  verb->add_flag("--json", options->json, "every number, machine-readable");
  CLI::Option* search =
      verb->add_flag("--search", options->search,
                     "look for the best layout: every mesh, micro batch, schedule, ZeRO "
                     "and recomputation");
  for (CLI::Option* other : add_options_of_one_layout(*verb, *options)) {
    search->excludes(other);
  }
  verb->add_option("--top", options->searched.top, "with --search: layouts to tell")
      ->capture_default_str()
      ->check(CLI::Range(1, 1000))
      ->needs(search);
  verb->add_option("--until", options->searched.until,
                   "with --search: the fewest nodes, at most --nodes, on which the run "
                   "ends by this date (2027-03-31 or 2027-03-31T18:00, in UTC)")
      ->needs(search);
  verb->add_option("--budget", options->searched.budget,
                   "with --search: the fewest nodes, at most --nodes, on which the run "
                   "costs no more")
      ->check(CLI::PositiveNumber)
      ->needs(search);
  verb->footer(
      "Neither devices nor weights nor data are needed (docs/planning.md).\n"
      "Example: longhaul plan run.toml --nodes 16 --hardware p5.48xlarge\n"
      "The best layout: longhaul plan run.toml --nodes 16 --hardware p5.48xlarge "
      "--search");
  verb->callback(
      [options, &outcome] { outcome.exit_code = run_plan(*options, outcome.objects); });
}

}  // namespace longhaul::apps
