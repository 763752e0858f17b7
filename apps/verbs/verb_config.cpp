#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "apps/asked_layout.h"
#include "apps/inputs/checked_run.h"
#include "apps/program.h"
#include "apps/verbs.h"
#include "apps/verbs/auto_layout.h"
#include "longhaul/base/error.h"
#include "longhaul/base/file.h"
#include "longhaul/base/json.h"
#include "longhaul/base/text.h"
#include "longhaul/checkpoint/directory.h"
#include "longhaul/checkpoint/read/reader.h"
#include "longhaul/config/hardware_profile.h"
#include "longhaul/config/load.h"
#include "longhaul/config/reference.h"
#include "longhaul/optim/run_schedule.h"
#include "longhaul/train/history/history.h"

namespace longhaul::apps {
namespace {

struct ConfigCall {
  std::string file;
  std::vector<std::string> sets;
  int64_t ranks = 0;           // 0: not asked
  int64_t ranks_per_node = 0;  // 0: all on one machine
  std::string hardware;        // empty: that of run.hardware
  bool json = false;
};

/// The learning rates of a run, or why they are not known here.
struct Rates {
  std::optional<optim::RunSchedule> schedule = {};
  int64_t first = 1;
  std::string why = {};
  std::vector<optim::RatePoint> points = {};
};

/// Returns the rates of a schedule that continues from the checkpoint that a start of
/// this run would take.
Rates continued_rates(const RunConfig& config) {
  try {
    const auto found =
        checkpoint::resume_candidates(config.checkpoint.resume, checkpoint_dir(config));
    if (found.empty()) {
      return {
          .why =
              "schedule.continue goes on from a checkpoint, and no checkpoint was found"};
    }
    const auto history =
        train::History::from_json(checkpoint::CheckpointReader::open(found[0]).state());
    if (history.config_toml.empty()) {
      return {optim::RunSchedule(
                  optim::imported_schedule(config, *config.run.steps, history.step)),
              history.step + 1};
    }
    const RunConfig saved =
        parse_run_config(history.config_toml, found[0].string()).config;
    if (!history.schedule && !saved.run.steps) {
      return {
          .why =
              "the checkpoint's schedule is in epochs; its length in steps is known when "
              "training has read the data"};
    }
    const optim::ScheduleBasis basis = history.schedule.value_or(optim::ScheduleBasis{
        saved.schedule, saved.optimizer.lr, saved.run.steps.value_or(1)});
    return {optim::RunSchedule(optim::resumed_schedule({saved, basis, history.step},
                                                       config, *config.run.steps,
                                                       /*trains=*/true)),
            history.step + 1};
  } catch (const InputError& error) {
    return {.why = error.what()};
  }
}

/// Returns the rates of a run; none while the length of the run depends on its data.
Rates rates_of(const RunConfig& config) {
  if (!config.run.steps) {
    return {
        .why =
            "known when training starts and has counted the steps of the run's epochs"};
  }
  Rates rates = config.schedule.continue_
                    ? continued_rates(config)
                    : Rates{optim::RunSchedule(
                          {config.schedule, config.optimizer.lr, *config.run.steps})};
  if (rates.schedule) {
    rates.points = optim::rate_points(*rates.schedule, rates.first,
                                      last_step(config, *config.run.steps));
  }
  return rates;
}

/// Returns the numbers of data parallel ranks that the batch divides over.
std::vector<int64_t> possible_dp(const RunConfig& config) {
  const int64_t microbatches = config.batch.global_size / config.batch.micro_size;
  std::vector<int64_t> out;
  for (int64_t dp = 1; dp <= std::min<int64_t>(microbatches, 1 << 16); ++dp) {
    if (microbatches % dp == 0) out.push_back(dp);
  }
  return out;
}

std::string batch_line(const RunConfig& config, const ConfigCall& options) {
  if (config.parallel.undecided()) {
    return fmt::format(
        "{} tokens per step; parallel.auto chooses a layout where --ranks are given",
        grouped(config.batch.global_size * config.data.seq_len));
  }
  const DerivedBatch batch = derive_batch(config, std::max<int64_t>(1, options.ranks));
  if (options.ranks > 0) {
    return fmt::format(
        "{}: dp {}, {} per replica and step = accumulation {} * micro_size {}, {} tokens "
        "per step",
        counted(batch.world, "rank"), batch.dp,
        counted(batch.sequences_per_replica, "sequence"), batch.accumulation,
        config.batch.micro_size, grouped(batch.tokens_per_step));
  }
  std::vector<int64_t> dp = possible_dp(config);
  const bool more = dp.size() > 12;
  if (more) dp.resize(12);
  return fmt::format("{} tokens per step; divides over {}{} data parallel ranks",
                     grouped(batch.tokens_per_step), fmt::join(dp, ", "),
                     more ? ", ..." : "");
}

/// Prints the resolved settings. Everything else stands in comments, so that the output
/// is a run file, too.
void print_text(const LoadedConfig& loaded, const ConfigCall& options,
                const std::optional<AskedLayout>& layout) {
  const RunConfig& config = loaded.config;
  const std::string batch = batch_line(config, options);
  fmt::print("# {} resolved; hash {}\n{}\n# batch: {}\n", options.file,
             config_hash(config), to_toml(config), batch);
  if (const std::string chosen = chosen_text(config); !chosen.empty()) {
    fmt::print("# {}\n", chosen);
  }
  if (layout) print_layout(*layout);
  const Rates rates = rates_of(config);
  if (!rates.schedule) {
    fmt::print("# learning rate: {}\n", rates.why);
    return;
  }
  const double tokens = static_cast<double>(last_step(config, *config.run.steps)) *
                        static_cast<double>(config.batch.global_size) *
                        static_cast<double>(config.data.seq_len);
  fmt::print("# tokens in the whole run: {:.4g}\n", tokens);
  const std::string from = rates.schedule->describe();
  fmt::print("# learning rate{}{}\n#   {:>12}  {}\n", from.empty() ? "" : ", ", from,
             "step", "lr");
  for (const optim::RatePoint& point : rates.points) {
    fmt::print("#   {:>12}  {:.6g}\n", point.step, point.rate);
  }
}

void print_json(const LoadedConfig& loaded, const ConfigCall& options,
                const std::optional<AskedLayout>& layout) {
  const RunConfig& config = loaded.config;
  OrderedJson out;
  out["file"] = options.file;
  out["hash"] = config_hash(config);
  out["config"] = parse_ordered_json(to_json_text(config), options.file);
  out["warnings"] = loaded.warnings;
  if (!config.parallel.undecided()) {
    const DerivedBatch batch = derive_batch(config, std::max<int64_t>(1, options.ranks));
    out["batch"]["ranks"] = batch.world;
    out["batch"]["dp"] = batch.dp;
    out["batch"]["accumulation"] = batch.accumulation;
    out["batch"]["sequences_per_replica"] = batch.sequences_per_replica;
  }
  out["batch"]["tokens_per_step"] = config.batch.global_size * config.data.seq_len;
  if (layout) out["layout"] = layout_json(*layout);
  out["learning_rates"] = OrderedJson::array();
  for (const optim::RatePoint& point : rates_of(config).points) {
    out["learning_rates"].push_back({{"step", point.step}, {"lr", point.rate}});
  }
  fmt::print("{}\n", json_text(out, 2));
}

/// Returns the device that the layout's memory is counted on: that of run.hardware, where
/// the run names a profile that is here.
std::string device_of(const RunSection& run) {
  if (run.hardware.empty() || !fs::exists(run.hardware)) return run.device;
  return parse_hardware_profile(read_text(run.hardware), run.hardware.string()).device;
}

void run_config(const ConfigCall& options) {
  if (options.file.empty()) {
    fmt::print("{}", options.json ? config_reference_json() : config_reference_text());
    return;
  }
  std::vector<std::string> sets = options.sets;
  if (options.ranks > 0) {
    sets = with_auto_layout(options.file, std::move(sets),
                            {.hardware = options.hardware,
                             .ranks = options.ranks,
                             .node_ranks = options.ranks_per_node});
  }
  const CheckedRun run = check_run(options.file, sets, options.ranks);
  const LoadedConfig& loaded = run.loaded;
  std::optional<AskedLayout> layout;
  if (run.model && options.ranks > 0) {
    layout = describe_run(
        loaded.config, run.model->description, options.ranks, options.ranks_per_node,
        options.hardware.empty() ? device_of(loaded.config.run)
                                 : machine_profile(options.hardware, 0.0).device);
  }
  for (const std::string& warning : loaded.warnings) say_warning(warning);
  if (options.json) {
    print_json(loaded, options, layout);
  } else {
    print_text(loaded, options, layout);
  }
}

}  // namespace

void add_config(CLI::App& program, Outcome&) {
  const auto options = std::make_shared<ConfigCall>();
  CLI::App* verb = program.add_subcommand(
      "config",
      "Prints the reference of every setting, or one run file resolved and checked");
  CLI::Option* file = verb->add_option("file", options->file,
                                       "a run's TOML file; without it, the reference");
  add_set_option(*verb, options->sets, "; section.key= removes the key")->needs(file);
  CLI::Option* ranks =
      verb->add_option("--ranks", options->ranks,
                       "number of ranks whose batch arithmetic and layout are shown; "
                       "settings that train would refuse are refused")
          ->check(CLI::Range(1, 1'000'000))
          ->needs(file);
  verb->add_option("--ranks-per-node", options->ranks_per_node,
                   "ranks on each node, numbered side by side; without it all ranks are "
                   "on one node")
      ->check(CLI::Range(1, 4096))
      ->needs(ranks);
  verb->add_option("--hardware,--gpu", options->hardware,
                   "the machine on whose device memory is counted, and for which "
                   "parallel.auto chooses a layout, as longhaul plan takes it")
      ->needs(ranks);
  verb->add_flag("--json", options->json, "machine-readable");
  verb->footer("Example: longhaul config run.toml --set optimizer.lr=2e-5 --ranks 64");
  verb->callback([options] { run_config(*options); });
}

}  // namespace longhaul::apps
