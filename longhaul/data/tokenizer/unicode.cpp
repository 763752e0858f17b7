#include "longhaul/data/tokenizer/unicode.h"

#include <unicode/bytestream.h>
#include <unicode/normalizer2.h>

#include <algorithm>
#include <span>

#include "longhaul/base/error.h"

namespace longhaul::data {

CharClasses::CharClasses() : classes_(0x110000, 0) {
  for (const UnicodeRange& range : std::span(kUnicodeRanges, kUnicodeRangeCount)) {
    std::fill(classes_.begin() + range.first, classes_.begin() + range.last + 1,
              range.classes);
  }
}

const CharClasses& char_classes() {
  static const CharClasses classes;
  return classes;
}

namespace {

/// Bytes that a well-formed sequence with this lead has, and the range of its second
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

namespace {

/// Marks that are younger than the tables of Hugging Face's normalizer, which takes them
/// for starters: text is normalised apart on either side of them. Found by comparing
/// every code point (tests/parity/test_tokenizer.py).
constexpr std::string_view kYoungMarks[] = {"\u1DF6", "\U0001E4EC", "\U0001E4ED"};

std::string icu_nfc(std::string_view text);

}  // namespace

std::string to_nfc(std::string_view text) {
  std::string out;
  while (true) {
    size_t first = std::string_view::npos;
    size_t length = 0;
    for (const std::string_view mark : kYoungMarks) {
      const size_t at = text.find(mark);
      if (at < first) {
        first = at;
        length = mark.size();
      }
    }
    if (first == std::string_view::npos) return out + icu_nfc(text);
    out += icu_nfc(text.substr(0, first));
    out += text.substr(first, length);
    text.remove_prefix(first + length);
  }
}

namespace {

std::string icu_nfc(std::string_view text) {
  // Below U+0300 (lead byte 0xCC) every text is in form C already.
  const bool plain = std::all_of(text.begin(), text.end(),
                                 [](char c) { return static_cast<uint8_t>(c) < 0xCC; });
  if (plain) return std::string(text);
  UErrorCode status = U_ZERO_ERROR;
  const icu::Normalizer2* nfc = icu::Normalizer2::getNFCInstance(status);
  LH_CHECK(U_SUCCESS(status), "tokenizer", "ICU has no NFC data: {}",
           u_errorName(status));
  std::string out;
  icu::StringByteSink<std::string> sink(&out, static_cast<int32_t>(text.size()));
  const icu::StringPiece piece(text.data(), static_cast<int32_t>(text.size()));
  nfc->normalizeUTF8(0, piece, sink, nullptr, status);
  LH_CHECK(U_SUCCESS(status), "tokenizer", "ICU cannot normalize: {}",
           u_errorName(status));
  return out;
}

}  // namespace

}  // namespace longhaul::data
