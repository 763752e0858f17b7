#include "longhaul/train/start/training_session.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "longhaul/optim/param_groups.h"
#include "longhaul/session/fingerprint.h"
#include "longhaul/train/start/kernel_cache.h"
#include "longhaul/train/start/staged_inputs.h"

namespace longhaul::train {
namespace {

optim::ParamGroups groups_of(const OptimizerSection& settings,
                             const ModelDescription& model, system::Logger& log) {
  optim::ParamGroups groups = optim::assign_param_groups(model, settings);
  for (const std::string& warning : groups.warnings) log.warning(warning);
  if (settings.kind == OptimizerKind::Lamb) optim::check_ratio_groups(model, groups);
  return groups;
}

/// Returns the layout in which each stage has as many layers as `partition` says. `now`
/// is the layout by the settings alone, which stays if it has these layers or if
/// `partition` is empty. Collective.
layout::LayoutDescription with_partition(layout::LayoutDescription now, RunConfig config,
                                         std::vector<int64_t> partition,
                                         const ModelDescription& model,
                                         const session::Machine& machine,
                                         system::Logger& log) {
  if (partition.empty() || partition == now.partition()) return now;
  log.info(
      fmt::format("parallel.partition: the stages keep the layers that they have in the "
                  "checkpoint, {}; a run that begins now has {}",
                  partition, now.partition()));
  config.parallel.partition = std::move(partition);
  return session::settle_layout(config, model, machine);
}

}  // namespace

TrainingSession::TrainingSession(session::Session session, objects::Access objects,
                                 RunData data, Json fingerprint,
                                 optim::ParamGroups groups)
    : Session(std::move(session)),
      objects_(std::move(objects)),
      data_(std::move(data)),
      fingerprint_(std::move(fingerprint)),
      groups_(std::move(groups)),
      parameter_names_(model().description.names()) {
  std::ranges::sort(parameter_names_);
  optimizer_ = std::make_unique<optim::Optimizer>(
      flat(), config().optimizer,
      optim::OptimizerInputs{optim::stored_tensor_names(model().description),
                             static_cast<uint64_t>(config().run.seed), groups_.frozen(),
                             !model().description.has_base});
}

TrainingSession build_session(const RunConfig& config,
                              std::shared_ptr<comm::Communicator> world,
                              system::Logger& log, data::ShardReader* shards,
                              const objects::Access& objects,
                              const PartitionOf& partition_of) {
  session::Machine machine = session::settle_machine(config, std::move(world), log);
  const bool fetches_shards = stage_inputs(config, *machine.world, objects, log);
  fill_kernel_cache(config, *machine.world, *machine.node, objects, log);
  ModelConfig model =
      session::settle_model(config, objects.readable(config.model.config), log);
  layout::LayoutDescription description =
      session::settle_layout(config, model.description, machine);
  RunData data = open_data({config, model, objects, *machine.world,
                            model_tokenizer(config, objects).get(), shards, log});
  data.fetches_shards = fetches_shards;
  if (partition_of) {
    description =
        with_partition(std::move(description), config, partition_of(model.description),
                       model.description, machine, log);
  }
  session::Layout layout(std::move(description), config, machine.device, machine.world);
  Json fingerprint =
      session::fingerprint_of(machine, layout.description(), model.network);
  optim::ParamGroups groups = groups_of(config.optimizer, model.description, log);
  session::Session session(config, std::move(machine), std::move(model),
                           std::move(layout), groups.settings, log);
  return {std::move(session), objects, std::move(data), std::move(fingerprint),
          std::move(groups)};
}

std::unique_ptr<tokenizer::Tokenizer> model_tokenizer(const RunConfig& config,
                                                      const objects::Access& objects) {
  for (const fs::path& path : {config.init.weights, config.model.config}) {
    if (path.empty()) continue;
    fs::path dir = objects.readable(path);
    if (!config.init.weights.empty() && path == config.init.weights) {
      dir = checkpoint::model_files_dir(checkpoint::resolve_model_source(dir));
    }
    if (fs::is_regular_file(dir)) dir = dir.parent_path();
    if (tokenizer::find_tokenizer_file(dir)) return tokenizer::Tokenizer::load(dir);
  }
  return {};
}

std::string title_of(const session::Session& session) {
  const layout::MeshIndex& at = session.mesh().index();
  std::string title =
      fmt::format("longhaul rank {} pp{} dp{}", session.world().rank(), at.pp, at.dp);
  if (session.mesh().shape().cp > 1) title += fmt::format(" cp{}", at.cp);
  return title + fmt::format(" tp{} step ", at.tp);
}

}  // namespace longhaul::train
