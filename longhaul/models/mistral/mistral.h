#pragma once

#include "longhaul/families/mistral/mistral.h"
#include "longhaul/models/model.h"
#include "longhaul/models/source_model.h"

namespace longhaul::models {

/// Mistral 7B (Jiang et al. 2023, arXiv 2310.06825).
std::unique_ptr<Model> make_mistral(const ModelConfig& config, const StageSpec& stage,
                                    ParameterSet& parameters);
std::unique_ptr<SourceModel> make_mistral_source(const ModelConfig& config,
                                                 const SourceFiles& files);

}  // namespace longhaul::models
