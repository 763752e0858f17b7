#include "apps/inputs/checked_run.h"

#include <fmt/format.h>

#include <utility>

#include "apps/inputs/data_places.h"
#include "apps/inputs/run_inputs.h"
#include "longhaul/base/clock.h"
#include "longhaul/base/error.h"
#include "longhaul/checkpoint/directory.h"
#include "longhaul/checkpoint/foreign_forms.h"
#include "longhaul/checkpoint/read/saved_partition.h"
#include "longhaul/families/adapter.h"
#include "longhaul/layout/rules.h"
#include "longhaul/optim/param_groups.h"

namespace longhaul::apps {
namespace {

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

/// Throws ConfigError where a start would refuse [optimizer] groups.
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

/// Checks what this machine can tell about the run's inputs, and adds the model, where it
/// is here.
void check_inputs(CheckedRun& run) {
  const RunConfig& config = run.loaded.config;
  std::vector<std::string>& warnings = run.loaded.warnings;
  checkpoint::refuse_foreign_start(config);
  if (starts_anew(config)) refuse_past_end(config, system_time());
  for (const auto& lines : {missing_inputs(config), unlooked_addresses(config)}) {
    run.elsewhere.insert(run.elsewhere.end(), lines.begin(), lines.end());
  }
  warnings.insert(warnings.end(), run.elsewhere.begin(), run.elsewhere.end());
  check_tasks(config);
  if (!fs::exists(config.model.config)) {
    warnings.emplace_back(
        "the settings are not checked against the model, since model.config is not here");
    return;
  }
  ModelConfig model = load_run_model(config);
  layout::check_against_model(config, model);
  const auto unused = settings_without_effect(config, model);
  warnings.insert(warnings.end(), unused.begin(), unused.end());
  check_groups(config, model.description, warnings);
  if (!model.training_problem.empty()) warnings.push_back(model.training_problem);
  check_first_weights(config, model);
  const std::string left_out = families::layers_left_out(config.adapter, model.network);
  if (!left_out.empty()) warnings.push_back(left_out);
  for (const std::string& field : model.ignored_fields) {
    warnings.push_back(
        fmt::format("{}: {} is not used", model.source_path.string(), field));
  }
  run.model = std::move(model);
}

}  // namespace

CheckedRun check_run(const std::string& file, std::span<const std::string> sets,
                     int64_t ranks) {
  CheckedRun run;
  run.loaded = load_with_places(file, sets);
  if (ranks > 0) derive_batch(run.loaded.config, ranks);
  check_inputs(run);
  return run;
}

std::set<std::string> frozen_parameters(const RunConfig& config,
                                        const ModelDescription& model) {
  return optim::assign_param_groups(model, config.optimizer).frozen();
}

AskedLayout describe_run(const RunConfig& config, const ModelDescription& model,
                         int64_t ranks, int64_t ranks_per_node, std::string_view device) {
  const layout::Placement placement =
      ranks_per_node > 0 ? layout::Placement::even(static_cast<int>(ranks_per_node))
                         : layout::Placement();
  const std::set<std::string> frozen = frozen_parameters(config, model);
  RunConfig placed = config;
  placed.parallel.partition = checkpoint::partition_of_start(config, model);
  return ask_layout(
      placed, model, ranks, placement,
      [&](const std::string& name) { return frozen.contains(name); }, device);
}

}  // namespace longhaul::apps
