#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "longhaul/base/file.h"

namespace longhaul {

/// Rotary position embedding, whatever form the source wrote it in.
struct RopeConfig {
  enum class Kind { Plain, Llama3, Linear };
  Kind kind = Kind::Plain;
  double theta = 0.0;
  /// Llama3 and Linear.
  double factor = 1.0;
  /// Llama3 only (Llama 3.1 model card; transformers modeling_rope_utils).
  double low_freq_factor = 1.0;
  double high_freq_factor = 4.0;
  int64_t original_max_position_embeddings = 0;
};

/// A Llama-family model, read from a Hugging Face config.json in any form that was
/// published. A field that changes the mathematics is honoured or refused.
struct ModelConfig {
  std::string model_type;  ///< "llama"
  int64_t vocab_size = 0;
  int64_t hidden_size = 0;
  int64_t intermediate_size = 0;
  int64_t num_hidden_layers = 0;
  int64_t num_attention_heads = 0;
  int64_t num_key_value_heads = 0;
  int64_t head_dim = 0;
  int64_t max_position_embeddings = 0;
  double rms_norm_eps = 0.0;
  double initializer_range = 0.02;
  bool tie_word_embeddings = false;
  RopeConfig rope;
  std::vector<int64_t> bos_token_ids;
  std::vector<int64_t> eos_token_ids;

  /// The source's own text (with overrides applied), for export in the same form.
  std::string source_json;
  /// Where it was read from: the config.json, and the directory around it.
  fs::path source_path;

  /// Parameters, with and without the input embedding (the head's counted once when tied).
  int64_t num_parameters() const;
  int64_t num_parameters_without_embedding() const;
};

}  // namespace longhaul
