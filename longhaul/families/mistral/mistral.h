#pragma once

#include <optional>

#include "longhaul/families/decoder.h"

namespace longhaul {

/// Mistral 7B and models of the same form: Llama's, and attention within a window.
struct MistralSettings : FamilySettings {
  DecoderSettings decoder;
  std::optional<int64_t> sliding_window;  ///< positions that a token sees at most
};

/// The settings of a model of this family; internal error for one of another.
const MistralSettings& mistral_settings(const ModelConfig& config);

const families::Family& mistral_family();

}  // namespace longhaul
