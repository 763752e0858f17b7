#pragma once

#include "longhaul/data/tokenizer/json_node.h"
#include "longhaul/data/tokenizer/pipeline_tokenizer.h"

namespace longhaul::data {

/// Reads the parts of a tokenizer.json. InputError names the part that is not supported.
Pipeline read_pipeline(const JsonNode& root);

// One part each (pipeline_json_parts.cpp); sequences append all their members.
void read_normalizer(const JsonNode& node, Normalizers& normalizers, int depth = 0);
void read_pre_tokenizer(const JsonNode& node, PreTokenizers& pre_tokenizers,
                        int depth = 0);
void read_decoder(const JsonNode& node, TokenDecoders& decoders, int depth = 0);

}  // namespace longhaul::data
