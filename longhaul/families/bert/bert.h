#pragma once

#include <optional>

#include "longhaul/families/family.h"

namespace longhaul::families {

/// BERT: attention both ways, learned positions and token types, LayerNorm after each
/// residual sum, GELU, dropout; the head, tied, sees the masked tokens only.
struct BertSettings : FamilySettings {
  int64_t hidden_size = 0;
  int64_t intermediate_size = 0;
  int64_t num_hidden_layers = 0;
  int64_t num_attention_heads = 0;
  int64_t type_vocab_size = 2;
  double layer_norm_eps = 1e-12;
  double initializer_range = 0.02;
  bool tanh_gelu = false;  ///< else the exact form
  double hidden_dropout = 0.1;
  double attention_dropout = 0.1;
  std::optional<int64_t> padding_row = 0;  ///< of the words
  bool next_sentence = true;               ///< BertForPreTraining; false: BertForMaskedLM
};

}  // namespace longhaul::families
