#include "longhaul/models/model.h"
#include "longhaul/models/source_model.h"

namespace longhaul::models {

std::unique_ptr<Model> make_model(const ModelConfig& config, const StageSpec& stage,
                                  tensor::ParameterSet& parameters) {
  return std::make_unique<Model>(config, stage, parameters);
}

std::unique_ptr<SourceModel> make_source_model(const ModelConfig& config,
                                               const SourceFiles& files,
                                               at::ScalarType compute) {
  return std::make_unique<SourceModel>(config, files, compute);
}

}  // namespace longhaul::models
