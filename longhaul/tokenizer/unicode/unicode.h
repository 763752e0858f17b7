#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace longhaul::tokenizer {

/// Classes of code points in split patterns.
enum CharClass : uint8_t {
  kLetter = 1,      ///< \p{L}
  kNumber = 2,      ///< \p{N}
  kSpace = 4,       ///< \s
  kUpperLike = 8,   ///< [\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]
  kLowerLike = 16,  ///< [\p{Ll}\p{Lm}\p{Lo}\p{M}]
  kWord = 32,       ///< \w in the search for added tokens
};

/// The classes of every code point, one byte each.
class CharClasses {
 public:
  CharClasses();
  uint8_t operator[](uint32_t code_point) const { return classes_[code_point]; }

 private:
  std::vector<uint8_t> classes_;
};

/// Returns the classes of all code points, which the first call builds.
const CharClasses& char_classes();

struct CodePoint {
  uint32_t value;
  uint32_t bytes;
};

/// Returns the code point at `pos` of valid UTF-8.
inline CodePoint decode_at(const char* text, size_t pos) {
  const auto byte = [&](size_t i) {
    return uint32_t{static_cast<uint8_t>(text[pos + i])};
  };
  const uint32_t lead = byte(0);
  if (lead < 0x80) return {lead, 1};
  if (lead < 0xE0) return {((lead & 0x1F) << 6) | (byte(1) & 0x3F), 2};
  if (lead < 0xF0) {
    return {((lead & 0x0F) << 12) | ((byte(1) & 0x3F) << 6) | (byte(2) & 0x3F), 3};
  }
  return {((lead & 0x07) << 18) | ((byte(1) & 0x3F) << 12) | ((byte(2) & 0x3F) << 6) |
              (byte(3) & 0x3F),
          4};
}

/// Returns the code point that ends before `pos` (> 0) of valid UTF-8.
inline CodePoint decode_before(const char* text, size_t pos) {
  size_t start = pos - 1;
  while ((static_cast<uint8_t>(text[start]) & 0xC0) == 0x80) --start;
  return decode_at(text, start);
}

/// Returns valid UTF-8, in which each maximal ill-formed part of `bytes` is U+FFFD, as
/// the Unicode standard recommends.
std::string utf8_lossy(std::string_view bytes);

}  // namespace longhaul::tokenizer
