#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace longhaul::tokenizer {

/// The alphabet of byte-level vocabularies: each byte is written as one printable
/// character; printable Latin-1 stands for itself, the others follow from U+0100.
uint32_t byte_to_char(uint8_t byte);

/// Bytes as they are written in a vocabulary.
std::string bytes_to_token(std::string_view bytes);

/// The bytes that a vocabulary entry stands for; nothing when a character of it is not of
/// the alphabet. `token` is valid UTF-8.
std::optional<std::string> token_to_bytes(std::string_view token);

}  // namespace longhaul::tokenizer
