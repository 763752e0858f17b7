#include "apps/verbs/auto_layout.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <system_error>

#include "apps/inputs/data_places.h"
#include "apps/pages/shared_files.h"
#include "apps/program.h"
#include "apps/verbs/planned_run.h"
#include "apps/verbs/searched_run.h"
#include "longhaul/base/error.h"
#include "longhaul/base/file.h"
#include "longhaul/base/text.h"
#include "longhaul/config/load.h"
#include "longhaul/config/rules.h"
#include "longhaul/families/adapter.h"
#include "longhaul/families/model_config.h"
#include "longhaul/layout/rules.h"
#include "longhaul/run/files.h"
#include "longhaul/system/terminal.h"

namespace longhaul::apps {
namespace {

constexpr const char* kHardwareArea = "hardware";
constexpr const char* kAutoKey = "parallel.auto";
/// The share of a rank's memory that a chosen layout may fill. A rank's resident set was
/// up to 10 % larger than what is counted (docs/benchmarks.md), and nobody looks at a
/// choice before it runs.
constexpr double kFilledShare = 0.9;

/// Returns the file of a machine that comes with the program, or a file of that name.
fs::path profile_of(const std::string& name) {
  std::error_code error;
  if (fs::is_regular_file(name, error)) return name;
  const std::vector<std::string> known = known_machines();
  if (std::ranges::find(known, name) != known.end()) {
    return shared_files("hardware", kHardwareArea) / (name + ".toml");
  }
  const auto nearest = nearest_name(name, known);
  fail_input(kHardwareArea, "{} is no file and no machine that comes along; {}known: {}",
             name, nearest ? fmt::format("did you mean {}? ", *nearest) : "",
             fmt::join(known, ", "));
}

/// Refuses a profile that says too little of its nodes.
void check_profile_node(const HardwareProfile& profile, const std::string& name) {
  const NodeProfile& node = profile.node;
  const auto need = [&](bool there, std::string_view what, std::string_view add) {
    if (!there) fail_config(kHardwareArea, "{} has no {}; add {}", name, what, add);
  };
  need(node.ranks > 0, "node",
       "[node] with ranks, device_bytes (of a device that is no CPU), host_bytes, "
       "price_per_hour and currency");
  need(profile.device == "cpu" || node.device_bytes > 0.0, "memory of a device",
       "node.device_bytes");
  need(node.host_bytes > 0.0, "memory of a node", "node.host_bytes");
  need(node.price_per_hour > 0.0, "price",
       "node.price_per_hour and node.currency, or give --price PER_HOUR (0: money is not "
       "counted)");
}

/// Returns the settings with which the run has begun, if parallel.auto has chosen their
/// layout.
std::optional<RunConfig> earlier_choice(const RunConfig& config) {
  if (config.parallel.chosen) return config;
  const fs::path file = config.run.dir / run::kConfigFile;
  std::error_code error;
  if (!fs::is_regular_file(file, error)) return {};
  try {
    RunConfig earlier = load_run_config(file).config;
    if (earlier.parallel.auto_ && earlier.parallel.chosen) return earlier;
  } catch (const Error&) {
    return {};  // another version of the program has written the file
  }
  return {};
}

PlannedOn planned_on(const RunConfig& config, const AutoCall& call,
                     const std::optional<RunConfig>& earlier) {
  std::string name = call.hardware;
  if (name.empty() && earlier) name = earlier->parallel.chosen->hardware;
  if (name.empty()) name = config.run.hardware.string();
  if (name.empty()) {
    config::fail_key(config, kAutoKey,
                     "parallel.auto = true needs the machine: give --hardware NAME or "
                     "FILE, or set run.hardware to a file that has [node]; known names: "
                     "{}",
                     fmt::join(known_machines(), ", "));
  }
  std::error_code error;
  if (fs::is_regular_file(name, error)) {
    name = fs::absolute(name).lexically_normal().string();
  }
  PlannedOn on{name, machine_profile(name, 0.0)};
  on.node_ranks = call.node_ranks > 0 ? call.node_ranks : on.profile.node.ranks;
  on.ranks = call.ranks > 0 ? call.ranks : call.nodes * on.node_ranks;
  on.nodes = (on.ranks + on.node_ranks - 1) / on.node_ranks;
  return on;
}

/// Returns the predicted seconds of a step, if the run's layout fits the machine.
std::optional<double> step_seconds(const CheckedRun& run, const PlannedOn& on) {
  const RunConfig& config = run.loaded.config;
  const layout::ModelLimits limits(run.model->description);
  if (!layout::broken_without_ranks(config, limits).empty()) return {};
  try {
    const PlannedFigures planned(run, on);
    const double room = kFilledShare * plan::room_of_rank(planned.cluster());
    if (plan::fullest(planned.memory).all() > room) return {};
    return planned.step.seconds;
  } catch (const ConfigError&) {
    return {};  // the layout breaks a rule on these ranks
  }
}

/// Says what the search keeps: ", with parallel.tp as it is given".
std::string kept_text(const std::vector<std::string>& open) {
  std::vector<std::string> kept;
  for (const std::string_view key : config::kLayoutSettings) {
    if (std::ranges::count(open, key) == 0) kept.emplace_back(key);
  }
  return kept.empty() ? "" : fmt::format(", with {} as given", fmt::join(kept, ", "));
}

/// Writes the fastest layout that fits into the run's settings, and returns its seconds.
double take_fastest(CheckedRun& run, const PlannedOn& on,
                    const std::vector<std::string>& open) {
  RunConfig& config = run.loaded.config;
  const SearchedLayouts searched =
      search_run(run, on, {.top = 1, .filled = kFilledShare});
  const std::string where =
      fmt::format("{} of {}{}", counted(on.ranks, "rank"), on.name, kept_text(open));
  if (searched.host_left < 0.0) {
    config::fail_key(config, kAutoKey,
                     "parallel.auto: the memory of a node lacks {} for saves and peer "
                     "memory on {}, in every layout; take checkpoint.async = false or no "
                     "resilience.peer_memory_every, or more nodes",
                     human_bytes(-searched.host_left), where);
  }
  if (searched.found.best.empty()) {
    const std::string why =
        searched.found.nearest
            ? fmt::format(
                  "the nearest lacks {}: {}",
                  human_bytes(searched.found.nearest->fullest.all() - searched.room),
                  plan::to_string(searched.found.nearest->settings, on.ranks))
            : "every layout breaks a rule";
    config::fail_key(config, kAutoKey,
                     "parallel.auto finds no layout for {}: {}; longhaul plan --search "
                     "says more",
                     where, why);
  }
  const plan::CountedLayout& best = searched.found.best.front();
  plan::set_layout(config, best.settings, on.ranks);
  return best.step.seconds;
}

}  // namespace

std::vector<std::string> known_machines() {
  std::vector<std::string> names;
  for (const auto& entry :
       fs::directory_iterator(shared_files("hardware", kHardwareArea))) {
    if (entry.path().extension() == ".toml") names.push_back(entry.path().stem());
  }
  std::ranges::sort(names);
  return names;
}

HardwareProfile machine_profile(const std::string& name, double price) {
  const fs::path file = profile_of(name);
  HardwareProfile profile = parse_hardware_profile(read_text(file), file.string());
  const bool free = price == 0.0;
  if (price >= 0.0) {
    profile.node.price_per_hour = free ? 1.0 : price;
    if (profile.node.currency.empty()) profile.node.currency = "USD";
  }
  check_profile_node(profile, file.string());
  if (free) profile.node.price_per_hour = 0.0;
  return profile;
}

void say_planned_warnings(const CheckedRun& run) {
  for (const std::string& warning : run.loaded.warnings) {
    if (std::ranges::find(run.elsewhere, warning) == run.elsewhere.end()) {
      say_warning(warning);
    }
  }
}

void check_planned(const CheckedRun& run) {
  if (run.model) return;
  fail_input("plan",
             "{} is not on this machine, and memory and time follow from the model's "
             "config.json; copy that file here (weights and data are not needed)",
             run.loaded.config.model.config.string());
}

std::optional<AutoLayout> auto_layout(const RunConfig& config, const AutoCall& call) {
  if (!config.parallel.auto_) return {};
  const std::vector<std::string> open = config::open_settings(config);
  const int64_t ranks = call.ranks > 0 ? call.ranks : call.nodes * call.node_ranks;
  const std::optional<ChosenLayout>& own = config.parallel.chosen;
  // The file of a run that has begun tells its layout without the machine's profile.
  if (own && own->ranks == ranks && own->settings == open && call.hardware.empty()) {
    return AutoLayout{{}, chosen_text(config), own->hardware, call.node_ranks};
  }
  const std::optional<RunConfig> earlier = earlier_choice(config);
  const PlannedOn on = planned_on(config, call, earlier);
  CheckedRun run;
  run.loaded.config = config;
  if (fs::exists(config.model.config)) {
    run.model = load_run_model(config);
  }
  check_planned(run);
  RunConfig& chosen = run.loaded.config;
  std::optional<double> seconds;
  if (earlier && earlier->parallel.chosen->ranks == on.ranks &&
      earlier->parallel.chosen->hardware == on.name &&
      earlier->parallel.chosen->settings == open) {
    copy_settings(*earlier, chosen, open);
    chosen.parallel.auto_ = false;
    seconds = step_seconds(run, on);
    if (!seconds) chosen = config;
  }
  if (!seconds) seconds = take_fastest(run, on, open);
  chosen.parallel.auto_ = true;
  chosen.parallel.chosen = ChosenLayout{on.ranks, on.name, *seconds, open};
  std::vector<std::string> keys = open;
  keys.emplace_back("parallel.chosen");
  return AutoLayout{as_sets(chosen, keys), chosen_text(chosen), on.name, on.node_ranks};
}

std::vector<std::string> with_auto_layout(const std::string& file,
                                          std::vector<std::string> sets,
                                          const AutoCall& call) {
  const RunConfig config = load_run_config(file, sets).config;
  if (const auto chosen = auto_layout(config, call)) {
    sets.insert(sets.end(), chosen->sets.begin(), chosen->sets.end());
  }
  return sets;
}

std::optional<AutoLayout> add_auto_layout(const RunConfig& config, const AutoCall& call,
                                          std::vector<std::string>& sets) {
  auto chosen = auto_layout(config, call);
  if (!chosen || chosen->sets.empty()) return chosen;
  const std::string& machine = chosen->hardware;
  const std::string why = machine_profile(machine, 0.0).comparison_only;
  if (!why.empty()) {
    config::fail_key(config, kAutoKey,
                     "parallel.auto: {} is for comparison only: {}; name the machine "
                     "that the run is to train on",
                     machine, why);
  }
  sets.insert(sets.end(), chosen->sets.begin(), chosen->sets.end());
  return chosen;
}

bool StartLayouts::chooses(int64_t nodes) const {
  const ParallelSection& p = config_.parallel;
  return p.auto_ && !(p.chosen && p.chosen->ranks == nodes * node_ranks_);
}

const std::vector<std::string>& StartLayouts::on(int64_t nodes) {
  if (!chooses(nodes)) return sets_;
  const auto [found, fresh] = chosen_.try_emplace(nodes, sets_);
  if (!fresh) return found->second;
  try {
    const auto chosen = add_auto_layout(
        config_, {.nodes = nodes, .node_ranks = node_ranks_}, found->second);
    fmt::print("longhaul: {}\n", chosen->text);
  } catch (...) {
    chosen_.erase(found);
    throw;
  }
  return found->second;
}

bool StartLayouts::fits(int64_t nodes) {
  if (!chooses(nodes)) {
    return config::broken_by_ranks(config_, nodes * node_ranks_).empty();
  }
  if (lacking_.contains(nodes)) return false;
  try {
    on(nodes);
    return true;
  } catch (const Error& problem) {
    lacking_.insert(nodes);
    fmt::print(stderr, "longhaul: {}: {}\n", counted(nodes, "node"),
               system::printable(problem.what()));
    return false;
  }
}

}  // namespace longhaul::apps
