#pragma once

#include "longhaul/families/bert/bert.h"
#include "longhaul/models/model.h"
#include "longhaul/models/source_model.h"

namespace longhaul::models {

/// BERT (Devlin et al., "BERT: Pre-training of Deep Bidirectional Transformers"), with
/// the heads of its pre-training.
std::unique_ptr<Model> make_bert(const ModelConfig& config, const StageSpec& stage,
                                 ParameterSet& parameters);
/// By modeling_bert.py of transformers.
std::unique_ptr<SourceModel> make_bert_source(const ModelConfig& config,
                                              const SourceFiles& files);

}  // namespace longhaul::models
