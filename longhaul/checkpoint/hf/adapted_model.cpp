#include "longhaul/checkpoint/hf/adapted_model.h"

#include "longhaul/base/error.h"
#include "longhaul/base/json.h"
#include "longhaul/base/missing_path.h"
#include "longhaul/base/text.h"
#include "longhaul/checkpoint/hf/adapted_source.h"
#include "longhaul/checkpoint/hf/model_check.h"
#include "longhaul/checkpoint/hf/peft.h"
#include "longhaul/checkpoint/read/reader.h"
#include "longhaul/comm/agree.h"
#include "longhaul/config/load.h"
#include "longhaul/families/adapter.h"
#include "longhaul/objects/address.h"
#include "longhaul/run/saved_settings.h"

namespace longhaul::checkpoint {
namespace {

/// Returns base_model_name_or_path of the adapter's settings in `dir` if it is a whole
/// path or an address, so that it means the same in any working directory, else an empty
/// text.
std::string place_of_base(const fs::path& dir) {
  const fs::path file = dir / kPeftConfig;
  if (!is_seen(file)) return {};
  const Json json = parse_json(read_text(file, uint64_t{1} << 24), file.string());
  const auto found = json.find("base_model_name_or_path");
  if (found == json.end() || !found->is_string()) return {};
  const auto place = found->get<std::string>();
  return fs::path(place).is_absolute() || objects::is_address(place) ? place : "";
}

/// Parses the settings of the run whose checkpoint is in `dir`.
RunConfig parse_settings(const std::string& text, const fs::path& dir) {
  return parse_run_config(text, (dir / "state.json").string()).config;
}

/// Makes the model of a base and of the adapter in `files`. Collective.
AdaptedModel joined(const RunConfig& config, const SharedSource& base,
                    const SharedSource& files, ModelConfig model,
                    comm::Communicator& world) {
  AdaptedModel named{with_adapter(as_parameters(base, model.description), {files, {}},
                                  model.description),
                     std::move(model), config.adapter};
  check_model(named.source, named.config, world);
  return named;
}

}  // namespace

ModelConfig model_of_adapter(const WeightsSource& files) {
  const fs::path dir = files.source().path;
  const RunConfig config = parse_settings(run::saved_settings(read_state(dir)), dir);
  return load_run_model(config, files.config_path());
}

AdaptedModel with_own_base(const SharedSource& files, const objects::Access& objects,
                           comm::Communicator& world) {
  const fs::path dir = files->source().path;
  const std::string text = comm::on_rank_zero(world, [&] {
    const Json state = read_state(dir);
    return json_text(Json{{"config", run::saved_settings(state)},
                          {"base", state.value("base", std::string())},
                          {"place", place_of_base(files->config_path().parent_path())}});
  });
  const Json state = parse_json(text, dir.string());
  const RunConfig config = parse_settings(state.at("config").get<std::string>(), dir);
  const auto place = state.at("place").get<std::string>();
  const fs::path named = place.empty() ? config.init.weights : fs::path(place);
  const fs::path weights = objects.readable(named);
  if (!is_seen(weights)) {
    fail_input(
        "adapter",
        "{} holds an adapter without its base, and its run read the base from {}: {}; "
        "bring the base there, or export the adapter without --merge and give it with "
        "--adapter",
        dir.string(), named.string(), missing_path(weights));
  }
  ModelConfig model = load_run_model(config, files->config_path());
  const SharedSource base =
      WeightsSource::open(weights, world, WeightsSource::Files::Held);
  const std::string hash =
      hash_of_base(*as_parameters(base, model.description), model.description, world);
  if (hash != state.at("base").get<std::string>()) {
    fail_config(
        "adapter",
        "{} is an adapter of another base than {} holds now (hash {}, the training's "
        "was {}); bring that base back",
        dir.string(), named.string(), hash, state.at("base").get<std::string>());
  }
  return joined(config, base, files, std::move(model), world);
}

AdaptedModel with_adapter_of(const fs::path& dir, const SharedSource& base,
                             comm::Communicator& world) {
  RunConfig config;
  ModelConfig model;
  SharedSource files;
  comm::on_all_ranks(world, [&] {
    files = open_peft(dir);
    config.adapter = section_of_peft(dir, *files, load_model_config(base->config_path()));
    model = load_run_model(config, base->config_path());
    files = fitting_peft(files, dir, config, model.description);
  });
  return joined(config, base, files, std::move(model), world);
}

}  // namespace longhaul::checkpoint
