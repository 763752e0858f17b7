#include "apps/inputs/run_inputs.h"

#include <fmt/format.h>

#include "apps/inputs/data_places.h"
#include "longhaul/base/error.h"
#include "longhaul/checkpoint/directory.h"
#include "longhaul/checkpoint/foreign_forms.h"
#include "longhaul/checkpoint/hf/adapted_source.h"
#include "longhaul/checkpoint/hf/model_check.h"
#include "longhaul/checkpoint/hf/peft.h"
#include "longhaul/comm/backend.h"
#include "longhaul/config/named_paths.h"
#include "longhaul/data/open_source.h"
#include "longhaul/data/tasks/task_file.h"
#include "longhaul/families/adapter.h"
#include "longhaul/layout/rules.h"
#include "longhaul/objects/address.h"

namespace longhaul::apps {

std::vector<std::string> missing_inputs(const RunConfig& config) {
  std::vector<std::string> missing;
  for (const NamedPath& named : named_paths(config)) {
    if (named.use == PathUse::Writes || named.use == PathUse::OfNodes) continue;
    // A run that has a checkpoint of its own does not read the one that it once began
    // from.
    const bool resumed = named.path == config.checkpoint.resume.path;
    if (resumed && checkpoint::find_checkpoint(checkpoint_dir(config))) continue;
    std::vector<fs::path> paths = {named.path};
    try {
      if (named.may_be_pattern) paths = data::expand_paths(paths);
    } catch (const InputError& error) {
      missing.push_back(fmt::format("{}: {}, on this machine", named.key, error.what()));
      continue;
    }
    for (const fs::path& path : paths) {
      if (objects::is_address(path) || fs::exists(path)) continue;
      missing.push_back(
          fmt::format("{}: {} is not on this machine", named.key, path.string()));
    }
  }
  return missing;
}

std::vector<std::string> unlooked_addresses(const RunConfig& config) {
  std::vector<std::string> lines;
  for (const fs::path& address : addresses_of(config)) {
    lines.push_back(address.string() + " is an address, looked at by train");
  }
  return lines;
}

void check_first_weights(const RunConfig& config, const ModelConfig& model) {
  const fs::path& weights = config.init.weights;
  // Weights at an address do not exist here. `train` fetches and checks them.
  if (weights.empty() || !fs::exists(weights)) return;
  using Kind = ResumeFrom::Kind;
  const Kind resume = config.checkpoint.resume.kind;
  const bool goes_on =
      resume == Kind::Latest && checkpoint::find_checkpoint(checkpoint_dir(config));
  if (goes_on || resume == Kind::Step || resume == Kind::Path) return;
  const auto world = comm::self_world("weights");
  checkpoint::SharedSource source = checkpoint::as_parameters(
      checkpoint::WeightsSource::open(weights, *world), model.description);
  if (model.description.has_base) {
    source = checkpoint::with_adapter(source, {}, model.description);
  }
  if (const fs::path& dir = config.init.adapter; !dir.empty()) {
    checkpoint::fitting_peft(checkpoint::open_peft(dir), dir, config, model.description);
  }
  checkpoint::check_model_files(source, model.description, *world);
}

void check_tasks(const RunConfig& config) {
  for (const TaskSource& task : config.validation.tasks) {
    if (fs::exists(task.path)) data::read_task_file(task.path);
  }
}

void check_before_start(const RunConfig& config, int ranks) {
  derive_batch(config, ranks);
  refuse_patterns(config);
  if (const auto missing = missing_inputs(config); !missing.empty()) {
    throw InputError("launch", missing.front() + "; nothing was started");
  }
  check_tasks(config);
  checkpoint::refuse_dangling(config.run.dir);
  checkpoint::refuse_dangling(checkpoint_dir(config));
  checkpoint::refuse_foreign_start(config);
  // A model at an address is not fetched just for a check. `train` fetches and checks it.
  if (objects::is_address(config.model.config)) return;
  const ModelConfig model = load_run_model(config);
  layout::check_against_model(config, model);
  check_first_weights(config, model);
}

}  // namespace longhaul::apps
