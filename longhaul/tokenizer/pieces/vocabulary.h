#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace longhaul::tokenizer {

/// Entries as written, by id. An id without a token is an empty optional.
using Vocabulary = std::vector<std::optional<std::string>>;

/// Returns how vocabularies with byte fallback write a byte: "<0x0A>".
std::string byte_token(uint8_t byte);
/// Returns the byte that a token such as "<0x0A>" stands for; nothing for other tokens.
std::optional<uint8_t> byte_of_token(std::string_view token);

/// The ids of the 256 byte tokens, as far as the vocabulary has them.
using ByteTokens = std::array<std::optional<uint32_t>, 256>;
ByteTokens find_byte_tokens(const Vocabulary& vocabulary);
/// Appends the ids of the bytes of `text`. Returns false and appends nothing if one byte
/// has no token.
bool append_bytes(const ByteTokens& tokens, std::string_view text,
                  std::vector<uint32_t>& out);

}  // namespace longhaul::tokenizer
