#include "longhaul/data/tokenizer/ascii_classes.h"

#include <cstring>

namespace longhaul::data {
namespace {

constexpr size_t kBytes = 64;

/// A bit of each of 64 bytes that are 0 or 1.
uint64_t bits_of(const uint8_t* bytes) {
  uint64_t bits = 0;
  for (size_t i = 0; i < kBytes; ++i) bits |= uint64_t{bytes[i]} << i;
  return bits;
}

/// A bit for each byte for which `is` holds; two loops, since compilers make vectors of
/// the first.
template <typename Is>
uint64_t bits_where(const uint8_t* text, Is&& is) {
  uint8_t found[kBytes];
  for (size_t i = 0; i < kBytes; ++i) found[i] = is(text[i]) ? 1 : 0;
  return bits_of(found);
}

}  // namespace

void classify_ascii_any(const char* text, AsciiClasses& classes) {
  uint8_t bytes[kBytes];
  std::memcpy(bytes, text, kBytes);
  const auto between = [&](int first, int last) {
    return bits_where(bytes, [=](uint8_t c) {
      return static_cast<uint8_t>(c - first) <= static_cast<uint8_t>(last - first);
    });
  };
  classes.uppers = between('A', 'Z');
  classes.letters = classes.uppers | between('a', 'z');
  classes.digits = between('0', '9');
  classes.blanks = between(' ', ' ');
  classes.spaces = classes.blanks | between('\t', '\r');
  classes.newlines = between('\n', '\n') | between('\r', '\r');
  classes.quotes = between('\'', '\'');
  classes.slashes = between('/', '/');
  classes.others = between(0x80, 0xFF);
}

}  // namespace longhaul::data
