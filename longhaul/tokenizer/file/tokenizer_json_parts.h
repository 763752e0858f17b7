#pragma once

#include <optional>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "longhaul/tokenizer/file/file_tokenizer.h"
#include "longhaul/tokenizer/file/json_node.h"
#include "longhaul/tokenizer/file/pipeline_tokenizer.h"
#include "longhaul/tokenizer/pieces/bpe_model.h"
#include "longhaul/tokenizer/split/added_tokens.h"

namespace longhaul::tokenizer {

// Readers of the parts of a tokenizer.json that every kind of tokenizer has. All throw
// InputError with the file and the place in the file.

/// The ids of tokens by text. The keys are views into the strings of the JSON document.
using TokenIds = std::unordered_map<std::string_view, uint32_t>;

TokenIds read_vocab(const JsonNode& node, Vocabulary& vocab);
/// Returns the token that stands for what the vocabulary cannot express.
std::optional<uint32_t> read_unknown(const JsonNode& node, const TokenIds& ids);
/// Reads a model of merges over bytes or characters.
TokenIds read_bpe(const JsonNode& node, BpeSpec& spec);

/// Reads the added tokens, and adds their ids to `ids`. Hugging Face ignores the ids of
/// this list: a token has the id that the vocabulary gives it, else the next free one. A
/// file with other ids is refused, since Hugging Face would read it differently.
/// `vocab_count` is the number of entries of the model's vocabulary.
std::vector<AddedToken> read_added(const JsonNode& node, TokenIds& ids,
                                   uint32_t vocab_count);

/// Reads what the post-processor puts before and after a single text.
void read_post_processor(const JsonNode& node, Affixes& affixes, const TokenIds& ids,
                         int depth = 0);

/// Reads the parts of a tokenizer.json. Throws InputError that names a part that is not
/// supported.
Pipeline read_pipeline(const JsonNode& root);

// Each function reads one part (pipeline_json_parts.cpp) and appends all members of a
// sequence.
void read_normalizer(const JsonNode& node, Normalizers& normalizers);
void read_pre_tokenizer(const JsonNode& node, PreTokenizers& pre_tokenizers);
void read_decoder(const JsonNode& node, TokenDecoders& decoders);

}  // namespace longhaul::tokenizer
