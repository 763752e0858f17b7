#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace longhaul::tokenizer {

/// Entries as written, by id; holes are empty optionals.
using Vocabulary = std::vector<std::optional<std::string>>;

/// "<0x0A>": how vocabularies with byte fallback write a byte.
std::string byte_token(uint8_t byte);
/// The byte that such a token stands for.
std::optional<uint8_t> byte_of_token(std::string_view token);

/// The ids of the 256 byte tokens, where the vocabulary has them.
using ByteTokens = std::array<std::optional<uint32_t>, 256>;
ByteTokens find_byte_tokens(const Vocabulary& vocabulary);
/// Appends the ids of the bytes of `text`; false, and nothing appended, when one of them
/// has no token.
bool append_bytes(const ByteTokens& tokens, std::string_view text,
                  std::vector<uint32_t>& out);

}  // namespace longhaul::tokenizer
