#pragma once

#include <memory>
#include <string_view>

#include "longhaul/models/model.h"
#include "longhaul/models/source_model.h"

namespace longhaul::models {

/// A family's mathematics.
struct ModelFamily {
  std::string_view model_type;
  std::unique_ptr<Model> (*make)(const ModelConfig& config, const StageSpec& stage,
                                 ParameterSet& parameters);
  /// Or null.
  std::unique_ptr<SourceModel> (*make_source)(const ModelConfig& config,
                                              const SourceFiles& files);
};

/// Null for one that cannot be computed.
const ModelFamily* find_model_family(std::string_view model_type);

}  // namespace longhaul::models
