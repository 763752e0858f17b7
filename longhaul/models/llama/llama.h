#pragma once

#include "longhaul/families/llama/llama.h"
#include "longhaul/models/model.h"
#include "longhaul/models/source_model.h"

namespace longhaul::models {

/// Llama 2, 3 and 3.1 (Touvron et al. 2023; Grattafiori et al. 2024).
std::unique_ptr<Model> make_llama(const ModelConfig& config, const StageSpec& stage,
                                  ParameterSet& parameters);
std::unique_ptr<SourceModel> make_llama_source(const ModelConfig& config,
                                               const SourceFiles& files);

}  // namespace longhaul::models
