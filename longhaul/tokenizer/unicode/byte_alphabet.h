#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace longhaul::tokenizer {

/// Returns the character for a byte in byte-level vocabularies. Printable Latin-1 stands
/// for itself, and the other bytes are the characters from U+0100 on.
uint32_t byte_to_char(uint8_t byte);

/// Returns bytes as a vocabulary writes them.
std::string bytes_to_token(std::string_view bytes);

/// Returns the bytes that a vocabulary entry stands for, or nothing if one of its
/// characters is not of the alphabet. `token` is valid UTF-8.
std::optional<std::string> token_to_bytes(std::string_view token);

}  // namespace longhaul::tokenizer
