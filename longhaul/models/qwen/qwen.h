#pragma once

#include "longhaul/families/qwen/qwen.h"
#include "longhaul/models/model.h"
#include "longhaul/models/source_model.h"

namespace longhaul::models {

/// Qwen2 (Yang et al. 2024, arXiv 2407.10671) and Qwen3 (Yang et al. 2025, arXiv
/// 2505.09388).
std::unique_ptr<Model> make_qwen(const ModelConfig& config, const StageSpec& stage,
                                 ParameterSet& parameters);
std::unique_ptr<SourceModel> make_qwen_source(const ModelConfig& config,
                                              const SourceFiles& files);

}  // namespace longhaul::models
