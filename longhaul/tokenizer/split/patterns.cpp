#include "longhaul/tokenizer/split/patterns.h"

#include <array>

namespace longhaul::tokenizer {
namespace {

struct Spelling {
  SplitPattern pattern;
  std::string_view regex;
};

constexpr std::array kSpellings = {
    Spelling{
        SplitPattern::Gpt2,
        R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)"},
    Spelling{
        SplitPattern::Gpt2,
        R"('(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)"},
    Spelling{
        SplitPattern::Llama3,
        R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"},
    Spelling{
        SplitPattern::Qwen2,
        R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"},
    Spelling{
        SplitPattern::O200k,
        R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)"},
};

/// Matches one text with one table. Every function returns the end of a match, or
/// kNoMatch.
class Matcher {
 public:
  static constexpr size_t kNoMatch = static_cast<size_t>(-1);

  Matcher(const CharClasses& classes, std::string_view text)
      : classes_(classes), text_(text.data()), size_(text.size()) {}

  size_t gpt2(size_t pos) const;
  size_t cl100k(size_t pos, int digits) const;
  size_t o200k(size_t pos) const;

 private:
  CodePoint at(size_t pos) const { return decode_at(text_, pos); }
  uint8_t class_at(size_t pos, CodePoint& point) const {
    point = at(pos);
    return classes_[point.value];
  }
  char byte(size_t pos) const { return pos < size_ ? text_[pos] : '\0'; }

  /// [class]* from pos, at most `limit` code points.
  size_t run(size_t pos, uint8_t wanted, int limit = -1) const {
    CodePoint point;
    while (pos < size_ && limit != 0 && (class_at(pos, point) & wanted)) {
      pos += point.bytes;
      --limit;
    }
    return pos;
  }
  /// [^\s\p{L}\p{N}]* from pos.
  size_t run_of_signs(size_t pos) const {
    CodePoint point;
    while (pos < size_ && !(class_at(pos, point) & (kSpace | kLetter | kNumber))) {
      pos += point.bytes;
    }
    return pos;
  }
  size_t contraction(size_t pos, bool any_case) const;
  size_t spaces(size_t pos, bool newlines_first) const;
  size_t cased_word(size_t start) const;

  const CharClasses& classes_;
  const char* text_;
  size_t size_;
};

/// 's 't 're 've 'm 'll 'd at pos.
size_t Matcher::contraction(size_t pos, bool any_case) const {
  if (byte(pos) != '\'' || pos + 1 >= size_) return kNoMatch;
  const size_t letters = contraction_letters(byte(pos + 1), byte(pos + 2), any_case);
  if (letters > 0) return pos + 1 + letters;
  // U+017F, the long s, is an s in another case.
  if (any_case && at(pos + 1).value == 0x17F) return pos + 3;
  return kNoMatch;
}

/// Matches white space: \s*[\r\n]+ (if asked for), then \s+(?!\S), then \s+.
size_t Matcher::spaces(size_t pos, bool newlines_first) const {
  size_t end = pos;
  size_t last_start = pos;
  size_t after_newline = kNoMatch;
  CodePoint point;
  while (end < size_ && (class_at(end, point) & kSpace)) {
    last_start = end;
    end += point.bytes;
    if (point.value == '\n' || point.value == '\r') after_newline = end;
  }
  if (newlines_first && after_newline != kNoMatch) return after_newline;
  if (end == size_ || last_start == pos) return end;
  return last_start;  // the last one belongs to the word that follows
}

size_t Matcher::gpt2(size_t pos) const {
  const size_t short_form = contraction(pos, false);
  if (short_form != kNoMatch) return short_form;
  const size_t start = byte(pos) == ' ' ? pos + 1 : pos;
  if (start == size_) return start;
  CodePoint point;
  const uint8_t kind = class_at(start, point);
  if (kind & kLetter) return run(start, kLetter);
  if (kind & kNumber) return run(start, kNumber);
  if (kind & kSpace) return spaces(pos, false);
  return run_of_signs(start);
}

size_t Matcher::cl100k(size_t pos, int digits) const {
  const size_t short_form = contraction(pos, true);
  if (short_form != kNoMatch) return short_form;
  CodePoint point;
  const uint8_t kind = class_at(pos, point);
  if (kind & kLetter) return run(pos, kLetter);
  if (kind & kNumber) return run(pos, kNumber, digits);
  const size_t next = pos + point.bytes;
  CodePoint after;
  if (point.value != '\r' && point.value != '\n' && next < size_ &&
      (class_at(next, after) & kLetter)) {
    return run(next, kLetter);
  }
  const size_t signs = point.value == ' ' ? next : pos;
  size_t end = run_of_signs(signs);
  if (end > signs) {
    while (byte(end) == '\r' || byte(end) == '\n') ++end;
    return end;
  }
  return spaces(pos, true);
}

/// Matches the two word alternatives of o200k from `start`, without their first
/// character: upper* lower+, else upper+ lower*, then a contraction.
size_t Matcher::cased_word(size_t start) const {
  const size_t upper_end = run(start, kUpperLike);
  size_t end = run(upper_end, kLowerLike);
  if (end == upper_end) {
    // The part upper* gives characters back until lower+ finds a character of both
    // classes.
    size_t last_both = kNoMatch;
    CodePoint point;
    for (size_t pos = start; pos < upper_end; pos += point.bytes) {
      if (class_at(pos, point) & kLowerLike) last_both = pos + point.bytes;
    }
    if (last_both == kNoMatch) return kNoMatch;
    end = last_both;
  }
  const size_t short_form = contraction(end, true);
  return short_form != kNoMatch ? short_form : end;
}

size_t Matcher::o200k(size_t pos) const {
  CodePoint point;
  const uint8_t kind = class_at(pos, point);
  const bool newline = point.value == '\r' || point.value == '\n';
  const size_t next = pos + point.bytes;
  const bool may_lead = !newline && !(kind & (kLetter | kNumber));
  if (may_lead) {
    const size_t end = cased_word(next);
    if (end != kNoMatch) return end;
  }
  const size_t plain = cased_word(pos);
  if (plain != kNoMatch) return plain;
  for (const size_t start : {may_lead ? next : pos, pos}) {
    const size_t end = run(start, kUpperLike);
    if (end == start) continue;
    const size_t short_form = contraction(end, true);
    return short_form != kNoMatch ? short_form : end;
  }
  if (kind & kNumber) return run(pos, kNumber, 3);
  const size_t signs = point.value == ' ' ? next : pos;
  size_t end = run_of_signs(signs);
  if (end > signs) {
    while (byte(end) == '\r' || byte(end) == '\n' || byte(end) == '/') ++end;
    return end;
  }
  return spaces(pos, true);
}

}  // namespace

std::string_view split_name(SplitPattern pattern) {
  constexpr std::array<std::string_view, 5> kNames = {"none", "gpt2", "llama3", "qwen2",
                                                      "o200k"};
  return kNames.at(static_cast<size_t>(pattern));
}

std::optional<SplitPattern> split_from_regex(std::string_view regex) {
  for (const Spelling& spelling : kSpellings) {
    if (spelling.regex == regex) return spelling.pattern;
  }
  return std::nullopt;
}

std::string_view split_regex(SplitPattern pattern) {
  for (const Spelling& spelling : kSpellings) {
    if (spelling.pattern == pattern) return spelling.regex;
  }
  return {};
}

std::string known_splits() { return "gpt2, llama3 (cl100k), qwen2 and o200k"; }

size_t next_piece_end(SplitPattern pattern, const CharClasses& classes,
                      std::string_view text, size_t pos) {
  const Matcher matcher(classes, text);
  switch (pattern) {
    case SplitPattern::None:
      break;
    case SplitPattern::Gpt2:
      return matcher.gpt2(pos);
    case SplitPattern::Llama3:
      return matcher.cl100k(pos, 3);
    case SplitPattern::Qwen2:
      return matcher.cl100k(pos, 1);
    case SplitPattern::O200k:
      return matcher.o200k(pos);
  }
  return text.size();
}

}  // namespace longhaul::tokenizer
