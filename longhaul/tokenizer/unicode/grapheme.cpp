#include "longhaul/tokenizer/unicode/unicode.h"
#include "longhaul/tokenizer/unicode/unicode_data.h"

namespace longhaul::tokenizer {
namespace {

enum Grapheme { kOther, kControlLike, kExtend, kSpacing, kPrepend, kPictograph };

constexpr uint32_t kJoiner = 0x200D;

bool in(uint32_t point, uint32_t first, uint32_t last) {
  return point >= first && point <= last;
}
bool hangul_lead(uint32_t p) { return in(p, 0x1100, 0x115F) || in(p, 0xA960, 0xA97C); }
bool hangul_vowel(uint32_t p) { return in(p, 0x1160, 0x11A7) || in(p, 0xD7B0, 0xD7C6); }
bool hangul_tail(uint32_t p) { return in(p, 0x11A8, 0x11FF) || in(p, 0xD7CB, 0xD7FB); }
bool hangul_syllable(uint32_t p) { return in(p, 0xAC00, 0xD7A3); }
bool regional(uint32_t p) { return in(p, 0x1F1E6, 0x1F1FF); }

/// Applies the rules GB6 to GB8 of Unicode's grapheme clusters (UAX #29).
bool same_syllable(uint32_t before, uint32_t after) {
  const bool open = hangul_syllable(before) && (before - 0xAC00) % 28 == 0;
  if (hangul_lead(before)) {
    return hangul_lead(after) || hangul_vowel(after) || hangul_syllable(after);
  }
  if (hangul_vowel(before) || open) return hangul_vowel(after) || hangul_tail(after);
  return (hangul_tail(before) || hangul_syllable(before)) && hangul_tail(after);
}

}  // namespace

size_t grapheme_end(const UnicodeData& data, std::string_view text, size_t pos) {
  CodePoint before = decode_at(text.data(), pos);
  int kind = data.grapheme_class(before.value);
  // A pictograph, extenders and a joiner keep the next pictograph (rule GB11).
  bool after_pictograph = kind == kPictograph;
  bool joined = false;
  bool odd_regional = regional(before.value);
  pos += before.bytes;
  while (pos < text.size()) {
    const CodePoint after = decode_at(text.data(), pos);
    const int next = data.grapheme_class(after.value);
    if (before.value == '\r' && after.value == '\n') return pos + 1;
    if (kind == kControlLike || next == kControlLike) return pos;
    const bool holds = after.value == kJoiner || next == kExtend || next == kSpacing ||
                       kind == kPrepend || (joined && next == kPictograph) ||
                       same_syllable(before.value, after.value) ||
                       (odd_regional && regional(after.value));
    if (!holds) return pos;
    odd_regional = regional(after.value) && !(odd_regional && regional(before.value));
    joined = after_pictograph && after.value == kJoiner;
    after_pictograph = next == kPictograph ||
                       (after_pictograph && (next == kExtend || after.value == kJoiner));
    before = after;
    kind = next;
    pos += after.bytes;
  }
  return pos;
}

}  // namespace longhaul::tokenizer
