#include "longhaul/models/model.h"

#include <fmt/format.h>

#include "longhaul/base/error.h"
#include "longhaul/models/llama/llama.h"
#include "longhaul/models/llama/source.h"

namespace longhaul::models {
namespace {

std::unique_ptr<Model> make(const ModelConfig& config, const StageSpec& stage,
                            ParameterSet& parameters) {
  if (config.model_type == "llama") {
    return std::make_unique<Llama>(config, stage, parameters);
  }
  throw InputError("model", fmt::format("model_type '{}' is known and cannot be computed",
                                        config.model_type));
}

}  // namespace

std::unique_ptr<SourceModel> make_source_model(const ModelConfig& config,
                                               const SourceFiles& files) {
  if (config.model_type == "llama") return std::make_unique<LlamaSource>(config, files);
  return nullptr;
}

std::vector<ParameterPtr> Model::parameters() const {
  std::vector<ParameterPtr> all;
  for (const ParameterUnit& unit : units_) {
    all.insert(all.end(), unit.parameters.begin(), unit.parameters.end());
  }
  return all;
}

std::unique_ptr<Model> build(const ModelConfig& config, const StageSpec& stage) {
  ParameterSet parameters(config.description.stage(stage));
  std::unique_ptr<Model> model = make(config, stage, parameters);
  parameters.check_taken();
  model->units_ = parameters.units();
  return model;
}

std::unique_ptr<Model> build(const ModelConfig& config) {
  return build(config, config.description.whole());
}

}  // namespace longhaul::models
