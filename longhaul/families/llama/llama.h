#pragma once

#include "longhaul/families/decoder.h"

namespace longhaul {

/// Llama 1, 2, 3, 3.1 and models of the same form: what config.json says of them.
struct LlamaSettings : DecoderSettings {};

/// The settings of a model of this family; internal error for one of another.
const LlamaSettings& llama_settings(const ModelConfig& config);

/// A model of these settings, as if read from a file.
ModelConfig make_llama(const LlamaSettings& settings, int64_t vocab_size,
                       int64_t max_position_embeddings);

const families::Family& llama_family();

}  // namespace longhaul
