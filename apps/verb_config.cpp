#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "apps/asked_layout.h"
#include "apps/run_inputs.h"
#include "apps/verbs.h"
#include "longhaul/base/counted.h"
#include "longhaul/base/error.h"
#include "longhaul/base/json.h"
#include "longhaul/base/terminal.h"
#include "longhaul/base/text.h"
#include "longhaul/config/load.h"
#include "longhaul/config/reference.h"
#include "longhaul/families/model_config.h"
#include "longhaul/optim/param_groups.h"
#include "longhaul/optim/schedule.h"

namespace longhaul::apps {
namespace {

struct ConfigCall {
  std::string file;
  std::vector<std::string> sets;
  int64_t ranks = 0;           // 0: not asked
  int64_t ranks_per_node = 0;  // 0: all on one machine
  bool json = false;
};

struct RatePoint {
  int64_t step;
  double rate;
};

/// The learning rate at step 1, where the warm-up ends, at each quarter and at the last
/// step; nothing while the length of the run depends on its data.
std::vector<RatePoint> rate_points(const RunConfig& config) {
  if (!config.run.steps) return {};
  const int64_t total = *config.run.steps;
  const int64_t last = last_step(config, total);
  const int64_t horizon = config.schedule.horizon.value_or(total);
  const auto warmup = static_cast<int64_t>(warmup_length(config.schedule, horizon));
  std::set<int64_t> steps{1, last};
  for (const int64_t quarter : {1, 2, 3})
    steps.insert(std::max<int64_t>(1, total * quarter / 4));
  if (warmup > 0) steps.insert(warmup + 1);
  const optim::Schedule schedule(config.schedule, config.optimizer.lr, total);
  std::vector<RatePoint> points;
  for (const int64_t step : steps) {
    if (step <= last) points.push_back({step, schedule.lr(step)});
  }
  return points;
}

/// Numbers of data parallel ranks that the batch divides over.
std::vector<int64_t> possible_dp(const RunConfig& config) {
  const int64_t microbatches = config.batch.global_size / config.batch.micro_size;
  std::vector<int64_t> out;
  for (int64_t dp = 1; dp <= std::min<int64_t>(microbatches, 1 << 16); ++dp) {
    if (microbatches % dp == 0) out.push_back(dp);
  }
  return out;
}

/// What this machine can tell about the run's inputs; a file that is only elsewhere is a
/// warning here and an error when the run starts.
/// Returns the model, where it is here.
std::optional<ModelConfig> check_inputs(const RunConfig& config,
                                        std::vector<std::string>& warnings) {
  const auto missing = missing_inputs(config);
  warnings.insert(warnings.end(), missing.begin(), missing.end());
  if (!fs::exists(config.model.config)) {
    warnings.emplace_back("the settings are not checked against model.config");
    return {};
  }
  ModelConfig model = load_model_config(config.model.config, config.model.override_);
  check_against_model(config, model);
  for (const std::string& field : model.ignored_fields) {
    warnings.push_back(
        fmt::format("{}: {} is not used", model.source_path.string(), field));
  }
  return model;
}

AskedLayout describe(const RunConfig& config, const ModelDescription& model,
                     const ConfigCall& options) {
  const Placement placement =
      options.ranks_per_node > 0
          ? Placement::even(static_cast<int>(options.ranks_per_node))
          : Placement();
  std::vector<std::string> names = model.names();
  const optim::ParamGroups groups =
      optim::assign_param_groups(names, config.optimizer, model.names_without_decay());
  std::set<std::string> frozen;
  for (size_t i = 0; i < names.size(); ++i) {
    if (groups.settings[i].frozen) frozen.insert(names[i]);
  }
  return ask_layout(config, model, options.ranks, placement,
                    [&](const std::string& name) { return frozen.contains(name); });
}

std::string batch_line(const RunConfig& config, const ConfigCall& options) {
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

/// The resolved file; everything else stands in comments, so that the output is one too.
void print_text(const LoadedConfig& loaded, const ConfigCall& options,
                const std::optional<AskedLayout>& layout) {
  const RunConfig& config = loaded.config;
  const std::string batch = batch_line(config, options);
  fmt::print("# {} resolved; hash {}\n{}\n# batch: {}\n", options.file,
             config_hash(config), to_toml(config), batch);
  if (layout) print_layout(*layout);
  const std::vector<RatePoint> points = rate_points(config);
  if (points.empty()) {
    fmt::print("# learning rate: known once the data's size makes steps of epochs\n");
    return;
  }
  const double tokens = static_cast<double>(last_step(config, *config.run.steps)) *
                        static_cast<double>(config.batch.global_size) *
                        static_cast<double>(config.data.seq_len);
  fmt::print("# tokens in the whole run: {:.4g}\n", tokens);
  fmt::print("# learning rate\n#   {:>12}  {}\n", "step", "lr");
  for (const RatePoint& point : points) {
    fmt::print("#   {:>12}  {:.6g}\n", point.step, point.rate);
  }
}

void print_json(const LoadedConfig& loaded, const ConfigCall& options,
                const std::optional<AskedLayout>& layout) {
  const RunConfig& config = loaded.config;
  const DerivedBatch batch = derive_batch(config, std::max<int64_t>(1, options.ranks));
  OrderedJson out;
  out["file"] = options.file;
  out["hash"] = config_hash(config);
  out["config"] = parse_ordered_json(to_json_text(config), options.file);
  out["warnings"] = loaded.warnings;
  out["batch"]["ranks"] = batch.world;
  out["batch"]["dp"] = batch.dp;
  out["batch"]["accumulation"] = batch.accumulation;
  out["batch"]["sequences_per_replica"] = batch.sequences_per_replica;
  out["batch"]["tokens_per_step"] = batch.tokens_per_step;
  if (layout) out["layout"] = layout_json(*layout);
  out["learning_rates"] = OrderedJson::array();
  for (const RatePoint& point : rate_points(config)) {
    out["learning_rates"].push_back({{"step", point.step}, {"lr", point.rate}});
  }
  fmt::print("{}\n", out.dump(2));
}

void run_config(const ConfigCall& options) {
  if (options.file.empty()) {
    fmt::print("{}", options.json ? config_reference_json() : config_reference_text());
    return;
  }
  LoadedConfig loaded = load_run_config(options.file, options.sets);
  // In the order in which a start finds what does not fit.
  if (options.ranks > 0) derive_batch(loaded.config, options.ranks);
  const auto model = check_inputs(loaded.config, loaded.warnings);
  std::optional<AskedLayout> layout;
  if (model && options.ranks > 0) {
    layout = describe(loaded.config, model->description, options);
  }
  for (const std::string& warning : loaded.warnings) {
    fmt::print(stderr, "{} {}\n", warning_text("longhaul: warning:", STDERR_FILENO),
               printable(warning));
  }
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
      "config", "The reference of every setting; or one file resolved and checked");
  CLI::Option* file = verb->add_option("file", options->file,
                                       "a run's TOML file; without it, the reference");
  verb->add_option(
          "--set", options->sets,
          "section.key=value, as often as needed; section.key= takes the key out")
      ->allow_extra_args(false)
      ->needs(file);
  CLI::Option* ranks =
      verb->add_option("--ranks", options->ranks,
                       "show the batch arithmetic and the layout of so many ranks, and "
                       "refuse what train would")
          ->check(CLI::PositiveNumber)
          ->needs(file);
  verb->add_option("--ranks-per-node", options->ranks_per_node,
                   "of each machine, side by side; without it all are on one")
      ->check(CLI::PositiveNumber)
      ->needs(ranks);
  verb->add_flag("--json", options->json, "machine-readable");
  verb->footer("Example: longhaul config run.toml --set optimizer.lr=2e-5 --ranks 64");
  verb->callback([options] { run_config(*options); });
}

}  // namespace longhaul::apps
