#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "longhaul/base/file.h"
#include "longhaul/config/model_override.h"
#include "longhaul/families/description.h"
#include "longhaul/families/network.h"

namespace longhaul {

struct RunConfig;

/// A model, read from a Hugging Face config.json in any form that was published. A field
/// that changes the mathematics is honoured or refused.
struct ModelConfig {
  std::string model_type;  ///< "llama"
  int64_t vocab_size = 0;
  int64_t max_position_embeddings = 0;
  std::vector<int64_t> bos_token_ids;
  std::vector<int64_t> eos_token_ids;
  families::Network network;     ///< the forward
  ModelDescription description;  ///< what it consists of and what it costs

  /// Fields of the source that this program does not know: to be printed, not hidden.
  std::vector<std::string> ignored_fields;

  /// Why no new run may train it, although what was trained of it can be read; empty:
  /// nothing.
  std::string training_problem;

  /// The source's own text (with overrides applied), for export in the same form.
  std::string source_json;
  /// Where it was read from: the config.json, and the directory around it.
  fs::path source_path;
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

/// ConfigError where the run asks for more positions than the model has.
void check_against_model(const RunConfig& config, const ModelConfig& model);

/// ConfigError with the model's training_problem, for whoever is about to train it.
void check_trainable(const ModelConfig& model);

}  // namespace longhaul
