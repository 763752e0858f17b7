#pragma once

#include "longhaul/tokenizer/file/json_node.h"
#include "longhaul/tokenizer/pipeline_tokenizer.h"

namespace longhaul::tokenizer {

/// Reads the parts of a tokenizer.json. InputError names the part that is not supported.
Pipeline read_pipeline(const JsonNode& root);

// One part each (pipeline_json_parts.cpp); sequences append all their members.
void read_normalizer(const JsonNode& node, Normalizers& normalizers);
void read_pre_tokenizer(const JsonNode& node, PreTokenizers& pre_tokenizers);
void read_decoder(const JsonNode& node, TokenDecoders& decoders);

}  // namespace longhaul::tokenizer
