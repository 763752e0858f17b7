#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "longhaul/tokenizer/tokenizer.h"

namespace longhaul::infer {

/// Returns the ids of a text that a model is to continue, with the special tokens that
/// stand in front of a text. Throws InputError for a text without tokens, and for ids
/// past `vocab_size`, which are those of another model's tokenizer.
std::vector<int64_t> encode_prompt(const tokenizer::Tokenizer& tokenizer,
                                   const std::string& text, int64_t vocab_size);

}  // namespace longhaul::infer
