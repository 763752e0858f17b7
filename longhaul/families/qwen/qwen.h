#pragma once

#include "longhaul/families/decoder.h"

namespace longhaul {

/// Qwen2, Qwen2.5 and Qwen3: decoders with biases of queries, keys and values, or with a
/// norm of each head of queries and keys.
struct QwenSettings : DecoderSettings {
  bool biases = false;      ///< Qwen2
  bool head_norms = false;  ///< Qwen3
};

/// The settings of a model of this family; internal error for one of another.
const QwenSettings& qwen_settings(const ModelConfig& config);

const families::Family& qwen2_family();
const families::Family& qwen3_family();

}  // namespace longhaul
