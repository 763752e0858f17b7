#include "longhaul/tokenizer/pieces/vocabulary.h"

#include <fmt/format.h>

#include <algorithm>
#include <unordered_map>

namespace longhaul::tokenizer {

std::string byte_token(uint8_t byte) { return fmt::format("<0x{:02X}>", byte); }

std::optional<uint8_t> byte_of_token(std::string_view token) {
  if (token.size() != 6 || !token.starts_with("<0x") || token.back() != '>') {
    return std::nullopt;
  }
  const auto digit = [](char c) -> int {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    return -1;
  };
  const int low = digit(token[4]);
  // Hugging Face reads the digits as Rust does, which allows a plus sign.
  const int high = token[3] == '+' ? 0 : digit(token[3]);
  if (low < 0 || high < 0) return std::nullopt;
  return static_cast<uint8_t>(high * 16 + low);
}

ByteTokens find_byte_tokens(const Vocabulary& vocabulary) {
  std::unordered_map<std::string, uint8_t> names;
  for (int byte = 0; byte < 256; ++byte) {
    names.emplace(byte_token(static_cast<uint8_t>(byte)), static_cast<uint8_t>(byte));
  }
  ByteTokens tokens;
  for (size_t id = 0; id < vocabulary.size(); ++id) {
    if (!vocabulary[id]) continue;
    const auto found = names.find(*vocabulary[id]);
    if (found != names.end()) tokens[found->second] = static_cast<uint32_t>(id);
  }
  return tokens;
}

bool append_bytes(const ByteTokens& tokens, std::string_view text,
                  std::vector<uint32_t>& out) {
  const bool known = std::all_of(text.begin(), text.end(), [&](char c) {
    return tokens[static_cast<uint8_t>(c)].has_value();
  });
  if (!known) return false;
  for (const char c : text) out.push_back(*tokens[static_cast<uint8_t>(c)]);
  return true;
}

}  // namespace longhaul::tokenizer
