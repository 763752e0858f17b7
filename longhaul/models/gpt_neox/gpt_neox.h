#pragma once

#include "longhaul/families/gpt_neox/gpt_neox.h"
#include "longhaul/models/model.h"
#include "longhaul/models/source_model.h"

namespace longhaul::models {

/// GPT-NeoX (Black et al. 2022, arXiv 2204.06745), Pythia (Biderman et al. 2023, arXiv
/// 2304.01373).
std::unique_ptr<Model> make_gpt_neox(const ModelConfig& config, const StageSpec& stage,
                                     ParameterSet& parameters);
/// By modeling_gpt_neox.py of transformers.
std::unique_ptr<SourceModel> make_gpt_neox_source(const ModelConfig& config,
                                                  const SourceFiles& files);

}  // namespace longhaul::models
