#pragma once

#include <string>
#include <string_view>

#include "longhaul/checkpoint/hf/hf_forms.h"
#include "longhaul/config/run_config.h"
#include "longhaul/families/model_config.h"

namespace longhaul::checkpoint {

// An adapter in the format of PEFT (github.com/huggingface/peft) is a directory with two
// files: the settings (LoraConfig), and the tensors of the low-rank parts and of the
// modules that were trained whole. A tensor's name is that of the parameter behind
// kPeftPrefix; the parts of all experts of a layer are one tensor
// (ParameterDescription::other_form).

inline constexpr const char* kPeftConfig = "adapter_config.json";
inline constexpr const char* kPeftWeights = "adapter_model.safetensors";
inline constexpr const char* kPeftPrefix = "base_model.model.";

/// Returns adapter_config.json of the adapter that add_adapter has given the model.
/// `base` names the model that the adapter belongs to.
std::string to_peft_config(const AdapterSection& section, const ModelConfig& model,
                           const std::string& base);

/// Parses the text of adapter_config.json, without `modules` and `save`, which the names
/// of the tensors tell. Throws InputError that names the file and the field, for a field
/// that would change the result and is not available.
AdapterSection parse_peft_config(std::string_view text, const fs::path& file);
/// Reads adapter_config.json in a directory, and throws as parse_peft_config does.
AdapterSection read_peft_config(const fs::path& dir);

/// Opens the tensors of an adapter's directory under their names in the file without
/// kPeftPrefix. Throws InputError for values that are not finite and for files that
/// cannot be read.
SharedSource open_peft(const fs::path& dir);

/// Returns `adapter`, which open_peft() has opened in `dir`, under the names of the
/// parameters of `model`, whose adapter is that of `config`. Throws ConfigError, which
/// names the key, unless the adapter is one of `config`'s [adapter], and InputError
/// unless it has the tensors of `model`.
SharedSource fitting_peft(const SharedSource& adapter, const fs::path& dir,
                          const RunConfig& config, const ModelDescription& model);

/// Returns the settings of an adapter's directory with the modules that its tensors name.
/// Throws InputError, which names modules, unless these are the modules of `base` that
/// adapter_config.json means.
AdapterSection section_of_peft(const fs::path& dir, const WeightsSource& adapter,
                               const ModelConfig& base);

}  // namespace longhaul::checkpoint
