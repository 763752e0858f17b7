#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "apps/inputs/data_places.h"
#include "apps/inputs/run_inputs.h"
#include "apps/program.h"
#include "apps/verbs.h"
#include "longhaul/base/counted.h"
#include "longhaul/base/error.h"
#include "longhaul/base/json.h"
#include "longhaul/base/text.h"
#include "longhaul/checkpoint/directory.h"
#include "longhaul/checkpoint/foreign_forms.h"
#include "longhaul/checkpoint/read/reader.h"
#include "longhaul/config/load.h"
#include "longhaul/config/reference.h"
#include "longhaul/families/model_config.h"
#include "longhaul/layout/rank_costs.h"
#include "longhaul/layout/rules.h"
#include "longhaul/optim/param_groups.h"
#include "longhaul/optim/run_schedule.h"
#include "longhaul/train/history/history.h"

namespace longhaul::apps {
namespace {

struct ConfigCall {
  std::string file;
  std::vector<std::string> sets;
  int64_t ranks = 0;           // 0: not asked
  int64_t ranks_per_node = 0;  // 0: all on one machine
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

/// Returns whether a start would find nothing to resume from, so far as this machine can
/// tell.
bool starts_anew(const RunConfig& config) {
  try {
    return checkpoint::resume_candidates(config.checkpoint.resume, checkpoint_dir(config))
        .empty();
  } catch (const InputError&) {
    return false;
  }
}

/// Throws ConfigError if a start would refuse [optimizer] groups.
void check_groups(const RunConfig& config, const ModelDescription& model,
                  std::vector<std::string>& warnings) {
  const optim::ParamGroups groups = optim::assign_param_groups(model, config.optimizer);
  if (config.optimizer.kind == OptimizerKind::Lamb) {
    optim::check_ratio_groups(model, groups);
  }
  if (!groups.unmatched.empty() && starts_anew(config)) {
    optim::refuse_unmatched(config, groups);
  }
  for (const auto* lines : {&groups.unmatched, &groups.warnings}) {
    warnings.insert(warnings.end(), lines->begin(), lines->end());
  }
}

/// Checks the run's inputs as far as this machine has them. An input that is missing here
/// is a warning, and an error when the run starts. Returns the model, if it is here.
std::optional<ModelConfig> check_inputs(const RunConfig& config,
                                        std::vector<std::string>& warnings) {
  checkpoint::refuse_foreign_start(config);
  for (const auto& lines : {missing_inputs(config), unlooked_addresses(config)}) {
    warnings.insert(warnings.end(), lines.begin(), lines.end());
  }
  if (!fs::exists(config.model.config)) {
    warnings.emplace_back(
        "the settings are not checked against the model, since model.config is not here");
    return {};
  }
  ModelConfig model = load_model_config(config.model.config, config.model.override_);
  layout::check_against_model(config, model);
  const auto unused = settings_without_effect(config, model);
  warnings.insert(warnings.end(), unused.begin(), unused.end());
  check_groups(config, model.description, warnings);
  if (!model.training_problem.empty()) warnings.push_back(model.training_problem);
  check_first_weights(config, model);
  for (const std::string& field : model.ignored_fields) {
    warnings.push_back(
        fmt::format("{}: {} is not used", model.source_path.string(), field));
  }
  return model;
}

/// What is printed of one pipeline stage. The costs are those of the first rank of the
/// stage, since no other rank of it holds more.
struct StageLine {
  int stage = 0;
  int64_t first_layer = 0;
  int64_t end_layer = 0;
  layout::RankCosts costs;  ///< what one rank holds and sends, over all its stages
};

struct AskedLayout {
  layout::LayoutDescription layout;
  std::vector<StageLine> stages;
  int64_t checkpoint_bytes = 0;
  int64_t kept_checkpoints = 0;  ///< checkpoint.keep; 0: all
};

/// Computes the layout of the settings and its costs. Throws ConfigError like
/// describe_layout.
AskedLayout ask_layout(const RunConfig& config, const ModelDescription& model,
                       const ConfigCall& options) {
  const layout::Placement placement =
      options.ranks_per_node > 0
          ? layout::Placement::even(static_cast<int>(options.ranks_per_node))
          : layout::Placement();
  const std::set<std::string> names =
      optim::assign_param_groups(model, config.optimizer).frozen();
  const auto frozen = [&](const std::string& name) { return names.contains(name); };
  AskedLayout asked{layout::describe_layout(config, model, options.ranks, placement),
                    {},
                    layout::checkpoint_bytes(model, config.precision, frozen),
                    config.checkpoint.keep};
  const layout::LayoutDescription& layout = asked.layout;
  const layout::LayoutCosts costs(config, model, layout, frozen);
  for (int pp = 0; pp < layout.shape.pp; ++pp) {
    const int rank = layout::rank_at(layout.shape, {.pp = pp});
    asked.stages.push_back({pp, layout.stage(rank, 0).first_layer,
                            layout.stage(rank, layout.chunks - 1).end_layer,
                            costs.of(rank)});
  }
  return asked;
}

constexpr layout::TrafficKind kKindsOfTraffic[] = {
    layout::TrafficKind::Pipeline,  layout::TrafficKind::Tensor,
    layout::TrafficKind::Context,   layout::TrafficKind::Experts,
    layout::TrafficKind::Gradients, layout::TrafficKind::Weights};
static_assert(std::size(kKindsOfTraffic) == layout::kTrafficKinds);

void print_state(const AskedLayout& asked) {
  fmt::print(
      "# of one rank of each stage\n#   {:>5}  {:>11}  {:>14}  {:>9}  {:>9}  {:>9}  "
      "{:>9}\n",
      "stage", "layers", "parameters", "weights", "gradients", "masters", "moments");
  for (const StageLine& s : asked.stages) {
    const std::string layers =
        asked.layout.chunks > 1 ? fmt::format("{} parts", asked.layout.chunks)
                                : fmt::format("{} to {}", s.first_layer, s.end_layer - 1);
    const layout::StateBytes& state = s.costs.state;
    fmt::print("#   {:>5}  {:>11}  {:>14}  {:>9}  {:>9}  {:>9}  {:>9}\n", s.stage, layers,
               grouped(s.costs.parameters), human_bytes(state.weights),
               human_bytes(state.gradients), human_bytes(state.masters),
               human_bytes(state.moments));
  }
}

/// Prints the memory that a step needs in addition to weights and optimizer states.
/// Gathered units are in this table, since they come and go like activations.
void print_passes(const AskedLayout& asked) {
  fmt::print("# in a step\n#   {:>5}  {:>11}  {:>14}  {:>9}  {:>9}  {:>11}  {:>13}\n",
             "stage", "activations", "forwards open", "logits", "work", "whole units",
             "all, at most");
  for (const StageLine& s : asked.stages) {
    const layout::ActivationBytes& passes = s.costs.activations;
    const int64_t units = s.costs.whole.weights + s.costs.whole.gradients;
    fmt::print("#   {:>5}  {:>11}  {:>14}  {:>9}  {:>9}  {:>11}  {:>13}\n", s.stage,
               human_bytes(passes.in_flight.total()), passes.forwards,
               human_bytes(passes.logits), human_bytes(passes.work), human_bytes(units),
               human_bytes(layout::most_bytes(s.costs)));
  }
}

void print_traffic(const AskedLayout& asked) {
  fmt::print("# sent in a step\n#   {:>5}", "stage");
  for (const layout::TrafficKind kind : kKindsOfTraffic) {
    fmt::print("  {:>9}", layout::traffic_name(kind));
  }
  fmt::print("\n");
  for (const StageLine& s : asked.stages) {
    fmt::print("#   {:>5}", s.stage);
    for (const layout::TrafficKind kind : kKindsOfTraffic) {
      fmt::print("  {:>9}", human_bytes(s.costs.traffic.bytes(kind)));
    }
    fmt::print("\n");
  }
}

OrderedJson activations_json(const layout::ActivationBytes& passes) {
  OrderedJson out;
  for (size_t i = 0; i < kKeptKinds; ++i) {
    const auto kind = static_cast<KeptKind>(i);
    out[kept_name(kind)] = passes.in_flight[kind];
  }
  out["total"] = passes.in_flight.total();
  return out;
}

OrderedJson traffic_json(const layout::Traffic& traffic) {
  OrderedJson out = OrderedJson::array();
  for (const layout::TrafficLine& line : traffic.lines()) {
    out.push_back({{"kind", layout::traffic_name(line.kind)},
                   {"group", layout::group_name(line.group)},
                   {"operation", layout::verb_name(line.verb)},
                   {"calls", line.calls},
                   {"bytes", line.bytes}});
  }
  return out;
}

/// Prints the layout as comments of a TOML file, in aligned tables.
void print_layout(const AskedLayout& asked) {
  fmt::print("# layout: {}{}\n", asked.layout.describe(),
             asked.layout.shards > 1 ? fmt::format(", shard groups of {}",
                                                   counted(asked.layout.shards, "rank"))
                                     : "");
  print_state(asked);
  print_passes(asked);
  print_traffic(asked);
  fmt::print(
      "# a checkpoint: {}; checkpoint.keep = {}: {}\n",
      human_bytes(asked.checkpoint_bytes), asked.kept_checkpoints,
      asked.kept_checkpoints == 0
          ? "all of them stay"
          : fmt::format("{}, and one more while it is saved",
                        human_bytes(asked.checkpoint_bytes * asked.kept_checkpoints)));
}

OrderedJson layout_json(const AskedLayout& asked) {
  const layout::LayoutDescription& layout = asked.layout;
  OrderedJson out;
  out["pp"] = layout.shape.pp;
  out["dp"] = layout.shape.dp;
  out["cp"] = layout.shape.cp;
  out["tp"] = layout.shape.tp;
  out["ep"] = layout.ep;
  out["zero"] = layout.zero;
  out["shard_group"] = layout.shards;
  out["checkpoint_bytes"] = asked.checkpoint_bytes;
  out["stages"] = OrderedJson::array();
  for (const StageSpec& stage : layout.stages) {
    out["stages"].push_back(
        {{"first_layer", stage.first_layer}, {"end_layer", stage.end_layer}});
  }
  out["ranks"] = OrderedJson::array();
  for (const StageLine& s : asked.stages) {
    const layout::RankCosts& costs = s.costs;
    out["ranks"].push_back({{"pp", s.stage},
                            {"parameters", costs.parameters},
                            {"weight_bytes", costs.state.weights},
                            {"gradient_bytes", costs.state.gradients},
                            {"master_bytes", costs.state.masters},
                            {"moment_bytes", costs.state.moments},
                            {"whole_weight_bytes", costs.whole.weights},
                            {"whole_gradient_bytes", costs.whole.gradients},
                            {"activation_bytes", activations_json(costs.activations)},
                            {"open_forwards", costs.activations.forwards},
                            {"logits_bytes", costs.activations.logits},
                            {"work_bytes", costs.activations.work},
                            {"sent", traffic_json(costs.traffic)}});
  }
  return out;
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

/// Prints the resolved settings. Everything else stands in comments, so that the output
/// is a run file, too.
void print_text(const LoadedConfig& loaded, const ConfigCall& options,
                const std::optional<AskedLayout>& layout) {
  const RunConfig& config = loaded.config;
  const std::string batch = batch_line(config, options);
  fmt::print("# {} resolved; hash {}\n{}\n# batch: {}\n", options.file,
             config_hash(config), to_toml(config), batch);
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
  for (const optim::RatePoint& point : rates_of(config).points) {
    out["learning_rates"].push_back({{"step", point.step}, {"lr", point.rate}});
  }
  fmt::print("{}\n", json_text(out, 2));
}

void run_config(const ConfigCall& options) {
  if (options.file.empty()) {
    fmt::print("{}", options.json ? config_reference_json() : config_reference_text());
    return;
  }
  LoadedConfig loaded = load_with_places(options.file, options.sets);
  // The checks have the order in which a start makes them.
  if (options.ranks > 0) derive_batch(loaded.config, options.ranks);
  const auto model = check_inputs(loaded.config, loaded.warnings);
  std::optional<AskedLayout> layout;
  if (model && options.ranks > 0) {
    layout = ask_layout(loaded.config, model->description, options);
  }
  for (const std::string& warning : loaded.warnings) {
    say_warning(warning);
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
  verb->add_flag("--json", options->json, "machine-readable");
  verb->footer("Example: longhaul config run.toml --set optimizer.lr=2e-5 --ranks 64");
  verb->callback([options] { run_config(*options); });
}

}  // namespace longhaul::apps
