#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
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

/// One field of config.json to replace: `json` is the new value as JSON text.
struct ModelOverride {
  std::string field;
  std::string json;
  bool operator==(const ModelOverride&) const = default;
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

  /// Fields of the source that this program does not know: to be printed, not hidden.
  std::vector<std::string> ignored_fields;

  /// The source's own text (with overrides applied), for export in the same form.
  std::string source_json;
  /// Where it was read from: the config.json, and the directory around it.
  fs::path source_path;

  /// Parameters, with and without the input embedding (the head's counted once when
  /// tied).
  int64_t num_parameters() const;
  int64_t num_parameters_without_embedding() const;
};

/// Reads config.json (or the one inside an HF directory), replaces the fields of
/// `overrides` (each must be a field this program reads), and checks every field.
/// InputError names the file, the field, its value and what is supported.
ModelConfig load_model_config(const fs::path& dir_or_json,
                              std::span<const ModelOverride> overrides = {});

/// The same from JSON text; `source` stands for the file in messages.
ModelConfig parse_model_config(std::string_view json, const fs::path& source,
                               std::span<const ModelOverride> overrides = {});

/// config.json for an export: the source's own form, keys and order, with the dtype
/// (`dtype_name`: "float32", "bfloat16" or "float16") in the source's own spelling
/// (torch_dtype or dtype; where it had neither, that of the source's generation).
std::string to_hf_config_json(const ModelConfig& config, std::string_view dtype_name);

}  // namespace longhaul
