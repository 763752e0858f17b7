#pragma once

#include "longhaul/families/family.h"
#include "longhaul/families/rope.h"

namespace longhaul::families {

/// GPT-NeoX and Pythia: a part of each head rotated, LayerNorm, biases, GELU, attention
/// and feed-forward side by side or one after the other.
struct GptNeoxSettings : FamilySettings {
  int64_t hidden_size = 0;
  int64_t intermediate_size = 0;
  int64_t num_hidden_layers = 0;
  int64_t num_attention_heads = 0;
  int64_t rotated = 0;  ///< features of each head, the first ones
  double layer_norm_eps = 1e-5;
  double initializer_range = 0.02;
  bool tie_word_embeddings = false;
  bool parallel_residual = true;
  bool attention_bias = true;
  bool tanh_gelu = false;  ///< else the exact form
  RopeConfig rope;

  int64_t head_dim() const { return hidden_size / num_attention_heads; }
};

/// The settings of a model of this family; internal error for one of another.
const GptNeoxSettings& gpt_neox_settings(const ModelConfig& config);

}  // namespace longhaul::families
