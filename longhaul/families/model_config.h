#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "longhaul/base/file.h"
#include "longhaul/config/model_override.h"
#include "longhaul/families/description/description.h"
#include "longhaul/families/network.h"

namespace longhaul {

struct RunConfig;

/// A model, read from a Hugging Face config.json in any form that was published. A field
/// that changes the mathematics is honoured or refused.
struct ModelConfig {
  std::string model_type;  ///< "llama"
  int64_t vocab_size = 0;
  std::vector<int64_t> bos_token_ids;
  std::vector<int64_t> eos_token_ids;
  families::Network network;     ///< the forward pass
  ModelDescription description;  ///< what the network consists of and what it costs

  /// Fields of the source that this program does not know, for a message to the user.
  std::vector<std::string> ignored_fields;

  /// Why no new run may train the model, although older checkpoints of it can be read;
  /// empty if runs may.
  std::string training_problem;

  /// The source's own text (with overrides applied), for export in the same form.
  std::string source_json;
  /// The config.json that the model was read from.
  fs::path source_path;
};

/// Reads a config.json, or the one in a Hugging Face directory, replaces the fields of
/// `overrides`, each of which must be a field that this program reads, and checks every
/// field. Throws InputError with the file, the field, its value and what is supported.
ModelConfig load_model_config(const fs::path& dir_or_json,
                              std::span<const ModelOverride> overrides = {});

/// Reads the text of a config.json, replaces the fields of `overrides` and checks every
/// field. `source` is the file that messages name.
ModelConfig parse_model_config(std::string_view json, const fs::path& source,
                               std::span<const ModelOverride> overrides = {});

/// Returns the config.json for an export, with the source's keys in their order. The
/// dtype (`dtype_name`: "float32", "bfloat16" or "float16") goes to the source's own
/// field, torch_dtype or dtype. If the source has neither, the dtype goes to the field
/// that the source's version of transformers writes.
std::string to_hf_config_json(const ModelConfig& config, std::string_view dtype_name);

/// Returns warnings about settings that were given and have no effect on this model, and
/// about a weight of the balancing loss in config.json that has no effect.
std::vector<std::string> settings_without_effect(const RunConfig& config,
                                                 const ModelConfig& model);

/// Throws ConfigError with the model's training_problem, if there is one. Whoever trains
/// a model calls this first.
void check_trainable(const ModelConfig& model);

}  // namespace longhaul
