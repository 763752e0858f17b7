#pragma once

#include "longhaul/families/gpt2/gpt2.h"
#include "longhaul/models/model.h"
#include "longhaul/models/source_model.h"

namespace longhaul::models {

/// GPT-2 (Radford et al. 2019, "Language Models are Unsupervised Multitask Learners").
std::unique_ptr<Model> make_gpt2(const ModelConfig& config, const StageSpec& stage,
                                 ParameterSet& parameters);
/// By modeling_gpt2.py of transformers.
std::unique_ptr<SourceModel> make_gpt2_source(const ModelConfig& config,
                                              const SourceFiles& files);

}  // namespace longhaul::models
