#pragma once

#include "longhaul/tokenizer/file/json_node.h"
#include "longhaul/tokenizer/file/pipeline_tokenizer.h"

namespace longhaul::tokenizer {

/// Reads the parts of a tokenizer.json. Throws InputError that names a part that is not
/// supported.
Pipeline read_pipeline(const JsonNode& root);

// Each function reads one part (pipeline_json_parts.cpp) and appends all members of a
// sequence.
void read_normalizer(const JsonNode& node, Normalizers& normalizers);
void read_pre_tokenizer(const JsonNode& node, PreTokenizers& pre_tokenizers);
void read_decoder(const JsonNode& node, TokenDecoders& decoders);

}  // namespace longhaul::tokenizer
