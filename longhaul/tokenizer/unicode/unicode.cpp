#include "longhaul/tokenizer/unicode/unicode.h"

#include <iterator>

#include "longhaul/tokenizer/unicode/unicode_data.h"

namespace longhaul::tokenizer {

namespace {

/// Code points for which \w differs between the engine of the split patterns, whose \w is
/// in the tables, and the engine that looks around added tokens.
constexpr uint32_t kOnlyInPatterns[] = {0xB2, 0xB3, 0xB9, 0xBC, 0xBD, 0xBE};
constexpr uint32_t kOnlyAroundTokens[] = {0x200C, 0x200D};  // the joiners

uint8_t classes_of_category(std::string_view category) {
  if (category == "Ll") return kLetter | kLowerLike;
  if (category == "Lm" || category == "Lo") return kLetter | kUpperLike | kLowerLike;
  if (category.starts_with('L')) return kLetter | kUpperLike;
  if (category.starts_with('M')) return kUpperLike | kLowerLike;
  if (category.starts_with('N')) return kNumber;
  return category.starts_with('Z') ? kSpace : 0;
}

}  // namespace

CharClasses::CharClasses() : classes_(0x110000, 0) {
  const UnicodeData& data = unicode_data();
  uint8_t of_category[kCategoryMask + 1] = {};
  for (size_t i = 0; i < std::size(kCategoryNames); ++i) {
    of_category[i + 1] = classes_of_category(kCategoryNames[i]);
  }
  for (uint32_t point = 0; point < classes_.size(); ++point) {
    const bool word = (data.properties(point) & kRegexWord) != 0;
    classes_[point] =
        static_cast<uint8_t>(of_category[data.category(point)] | (word ? kWord : 0));
  }
  for (const uint32_t point : {9, 10, 11, 12, 13, 0x85}) classes_[point] |= kSpace;
  for (const uint32_t point : kOnlyInPatterns) classes_[point] &= uint8_t{0xFF ^ kWord};
  for (const uint32_t point : kOnlyAroundTokens) classes_[point] |= kWord;
}

const CharClasses& char_classes() {
  static const CharClasses classes;
  return classes;
}

namespace {

/// The length of a well-formed sequence with this lead byte, and the range of its second
/// byte.
struct Lead {
  int length = 0;  // 0: not a lead
  uint8_t low = 0x80;
  uint8_t high = 0xBF;
};

Lead lead_of(uint8_t byte) {
  if (byte < 0x80) return {1};
  if (byte >= 0xC2 && byte <= 0xDF) return {2};
  if (byte == 0xE0) return {3, 0xA0, 0xBF};
  if (byte == 0xED) return {3, 0x80, 0x9F};
  if (byte >= 0xE1 && byte <= 0xEF) return {3};
  if (byte == 0xF0) return {4, 0x90, 0xBF};
  if (byte >= 0xF1 && byte <= 0xF3) return {4};
  if (byte == 0xF4) return {4, 0x80, 0x8F};
  return {};
}

}  // namespace

std::string utf8_lossy(std::string_view bytes) {
  std::string out;
  out.reserve(bytes.size());
  size_t pos = 0;
  while (pos < bytes.size()) {
    const Lead lead = lead_of(static_cast<uint8_t>(bytes[pos]));
    size_t good = 1;
    if (lead.length > 1) {
      uint8_t low = lead.low;
      uint8_t high = lead.high;
      while (good < static_cast<size_t>(lead.length) && pos + good < bytes.size()) {
        const auto byte = static_cast<uint8_t>(bytes[pos + good]);
        if (byte < low || byte > high) break;
        low = 0x80;
        high = 0xBF;
        ++good;
      }
    }
    if (good == static_cast<size_t>(lead.length)) {
      out.append(bytes.substr(pos, good));
    } else {
      out.append("\xEF\xBF\xBD");
    }
    pos += good;
  }
  return out;
}

}  // namespace longhaul::tokenizer
