#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "longhaul/tokenizer/tokenizer.h"

namespace longhaul::data {

// Stores hold tokens in little-endian order, in 2, 3 or 4 bytes each.

/// Returns the smallest number of bytes that holds every id of the vocabulary: 2 up to
/// 65,536 ids, 3 up to 16.7 million ids, else 4.
int token_bytes_for(int64_t vocab_size);
bool is_token_bytes(int64_t bytes);  ///< true for 2, 3 and 4

/// Appends the tokens to `out` in `token_bytes` bytes each.
void append_tokens(std::span<const tokenizer::TokenId> tokens, int token_bytes,
                   std::vector<std::byte>& out);

/// Reads out.size() tokens of `token_bytes` bytes each, and touches no byte after the
/// last token. Returns the largest token.
uint32_t read_tokens(const std::byte* from, int token_bytes, std::span<int32_t> out);

}  // namespace longhaul::data
