#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "longhaul/tokenizer/tokenizer.h"

namespace longhaul::data {

// Tokens as stores hold them: little-endian, 2, 3 or 4 bytes each.

/// As few bytes as hold every id of the vocabulary: 2 up to 65,536 ids, 3 up to 16.7
/// million.
int token_bytes_for(int64_t vocab_size);
bool is_token_bytes(int64_t bytes);  ///< true for 2, 3 and 4

/// Appends tokens of `token_bytes` bytes each.
void append_tokens(std::span<const tokenizer::TokenId> tokens, int token_bytes,
                   std::vector<std::byte>& out);

/// Reads out.size() tokens of `token_bytes` bytes each, and touches no byte behind the
/// last token. Returns the largest token.
uint32_t read_tokens(const std::byte* from, int token_bytes, std::span<int32_t> out);

}  // namespace longhaul::data
