#include "longhaul/models/model.h"

#include <fmt/format.h>

#include "longhaul/base/error.h"
#include "longhaul/models/llama/llama.h"

namespace longhaul::models {

StageSpec StageSpec::whole(const ModelConfig& config) {
  return {0, config.num_hidden_layers, true, true};
}

std::vector<ParameterPtr> Model::parameters() const {
  std::vector<ParameterPtr> all;
  for (const ModelUnit& unit : units()) {
    all.insert(all.end(), unit.parameters.begin(), unit.parameters.end());
  }
  return all;
}

std::unique_ptr<Model> build(const ModelConfig& config, const StageSpec& stage) {
  if (config.model_type == "llama") return std::make_unique<Llama>(config, stage);
  throw InputError("model",
                   fmt::format("model_type '{}' is not supported; supported: llama",
                               config.model_type));
}

}  // namespace longhaul::models
