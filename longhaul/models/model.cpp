#include "longhaul/models/model.h"

#include <fmt/format.h>

#include "longhaul/base/error.h"
#include "longhaul/models/registry.h"
#include "longhaul/nn/loss_head.h"

namespace longhaul::models {

std::unique_ptr<SourceModel> make_source_model(const ModelConfig& config,
                                               const SourceFiles& files) {
  const ModelFamily* family = find_model_family(config.model_type);
  if (family == nullptr || family->make_source == nullptr) return nullptr;
  return family->make_source(config, files);
}

std::vector<ParameterPtr> Model::parameters() const {
  std::vector<ParameterPtr> all;
  for (const ParameterUnit& unit : units_) {
    all.insert(all.end(), unit.parameters.begin(), unit.parameters.end());
  }
  return all;
}

nn::Tensors Model::hidden(const nn::Tensors& input,
                          const nn::ForwardContext& context) const {
  nn::Tensors x = stage_.embedding ? embed(context) : input;
  for (int64_t layer = stage_.first_layer; layer < stage_.end_layer; ++layer) {
    x = block(layer, x, context);
  }
  return stage_.head ? head(x, context) : x;
}

at::Tensor Model::target_rows(const nn::Tensors& hidden,
                              const nn::ForwardContext& context) const {
  return context.enter(hidden[0]).x.index_select(0, nn::rows_with_target(context.batch));
}

std::unique_ptr<Model> build(const ModelConfig& config, const StageSpec& stage) {
  const ModelFamily* family = find_model_family(config.model_type);
  if (family == nullptr) {
    throw InputError("model",
                     fmt::format("model_type '{}' is known and cannot be computed",
                                 config.model_type));
  }
  ParameterSet parameters(config.description.stage(stage));
  std::unique_ptr<Model> model = family->make(config, stage, parameters);
  parameters.check_taken();
  model->stage_ = stage;
  model->units_ = parameters.units();
  model->num_losses_ = config.description.losses.size();
  return model;
}

std::unique_ptr<Model> build(const ModelConfig& config) {
  return build(config, config.description.whole());
}

}  // namespace longhaul::models
