#include "longhaul/tokenizer/unicode/byte_alphabet.h"

#include "longhaul/tokenizer/unicode/unicode.h"
#include "longhaul/tokenizer/unicode/unicode_data.h"

namespace longhaul::tokenizer {
namespace {

constexpr bool stands_for_itself(int byte) {
  return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xFF && byte != 0xAD);
}

struct Alphabet {
  std::array<uint32_t, 256> chars{};
  std::array<int16_t, 0x180> bytes{};

  constexpr Alphabet() {
    bytes.fill(-1);
    uint32_t next = 0x100;
    for (int byte = 0; byte < 256; ++byte) {
      const auto index = static_cast<size_t>(byte);
      chars[index] = stands_for_itself(byte) ? static_cast<uint32_t>(byte) : next++;
      bytes[chars[index]] = static_cast<int16_t>(byte);
    }
  }
};

constexpr Alphabet kAlphabet;

}  // namespace

uint32_t byte_to_char(uint8_t byte) { return kAlphabet.chars[byte]; }

std::string bytes_to_token(std::string_view bytes) {
  std::string out;
  out.reserve(bytes.size());
  for (const char c : bytes) append_utf8(byte_to_char(static_cast<uint8_t>(c)), out);
  return out;
}

std::optional<std::string> token_to_bytes(std::string_view token) {
  std::string out;
  out.reserve(token.size());
  for (size_t pos = 0; pos < token.size();) {
    const CodePoint point = decode_at(token.data(), pos);
    if (point.value >= kAlphabet.bytes.size() || kAlphabet.bytes[point.value] < 0) {
      return std::nullopt;
    }
    out.push_back(static_cast<char>(kAlphabet.bytes[point.value]));
    pos += point.bytes;
  }
  return out;
}

}  // namespace longhaul::tokenizer
