#pragma once

#include "longhaul/families/family.h"

namespace longhaul::families {

/// GPT-2 (Radford et al. 2019, "Language Models are Unsupervised Multitask Learners"):
/// learned positions, LayerNorm, biases, GELU, the head tied, dropout.
struct Gpt2Settings : FamilySettings {
  int64_t n_embd = 0;
  int64_t n_inner = 0;
  int64_t n_layer = 0;
  int64_t n_head = 0;
  double layer_norm_epsilon = 1e-5;
  double initializer_range = 0.02;
  bool tie_word_embeddings = true;
  double embedding_dropout = 0.1;
  double attention_dropout = 0.1;  ///< of the probabilities
  double residual_dropout = 0.1;   ///< of what a block adds to the hidden states
};

}  // namespace longhaul::families
