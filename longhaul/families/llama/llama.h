#pragma once

#include "longhaul/families/family.h"
#include "longhaul/families/rope.h"

namespace longhaul {

/// Llama 1, 2, 3, 3.1 and models of the same form: what config.json says of them.
struct LlamaSettings : FamilySettings {
  int64_t hidden_size = 0;
  int64_t intermediate_size = 0;
  int64_t num_hidden_layers = 0;
  int64_t num_attention_heads = 0;
  int64_t num_key_value_heads = 0;
  int64_t head_dim = 0;
  double rms_norm_eps = 0.0;
  double initializer_range = 0.02;
  bool tie_word_embeddings = false;
  RopeConfig rope;
};

/// The settings of a model of this family; internal error for one of another.
const LlamaSettings& llama_settings(const ModelConfig& config);

/// A model of these settings, as if read from a file.
ModelConfig make_llama(const LlamaSettings& settings, int64_t vocab_size,
                       int64_t max_position_embeddings);

const families::Family& llama_family();

}  // namespace longhaul
