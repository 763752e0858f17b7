#include "longhaul/models/model.h"

#include <fmt/format.h>

#include "longhaul/base/error.h"
#include "longhaul/models/llama/llama.h"
#include "longhaul/models/llama/sharding.h"

namespace longhaul::models {
namespace {

[[noreturn]] void refuse_family(const ModelConfig& config) {
  throw InputError("model",
                   fmt::format("model_type '{}' is not supported; supported: llama",
                               config.model_type));
}

}  // namespace

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
  refuse_family(config);
}

const std::vector<ShardRule>& sharding_table(const ModelConfig& config) {
  if (config.model_type == "llama") return llama_sharding();
  refuse_family(config);
}

}  // namespace longhaul::models
