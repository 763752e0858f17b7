#include "apps/run_inputs.h"

#include <fmt/format.h>

#include "longhaul/base/error.h"
#include "longhaul/data/sources/open_source.h"
#include "longhaul/families/model_config.h"

namespace longhaul::apps {

std::vector<std::string> missing_inputs(const RunConfig& config) {
  std::vector<std::string> missing;
  const auto look = [&](const fs::path& path, const char* key) {
    if (path.empty() || fs::exists(path)) return;
    missing.push_back(fmt::format("{}: {} is not on this machine", key, path.string()));
  };
  const auto look_at_data = [&](const DataPaths& paths, const char* key) {
    try {
      for (const fs::path& path : data::expand_paths(paths.entries)) look(path, key);
    } catch (const InputError& error) {
      missing.push_back(fmt::format("{}: {}, on this machine", key, error.what()));
    }
  };
  look(config.model.config, "model.config");
  look(config.init.weights, "init.weights");
  for (const TrainSource& source : config.data.train) {
    look_at_data(source.path, "data.train");
  }
  for (const ValidationSource& source : config.data.validation) {
    look_at_data(source.path, "data.validation");
  }
  return missing;
}

void check_before_start(const RunConfig& config, int ranks) {
  derive_batch(config, ranks);
  if (const auto missing = missing_inputs(config); !missing.empty()) {
    throw InputError("launch", missing.front() + "; nothing was started");
  }
  check_against_model(config,
                      load_model_config(config.model.config, config.model.override_));
}

}  // namespace longhaul::apps
