#pragma once

#include <bitset>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "longhaul/tokenizer/unicode/unicode.h"
#include "longhaul/tokenizer/unicode/unicode_data.h"

namespace longhaul::tokenizer {

/// A set of code points, as a regular expression writes it between brackets.
class CharSet {
 public:
  void add_range(uint32_t first, uint32_t last) { ranges_.push_back({first, last}); }
  /// Adds general categories; bit i of the mask is category i.
  void add_categories(uint32_t mask, bool negated) {
    add_item({Item::Categories, mask, negated});
  }
  void add_space(bool negated) { add_item({Item::Space, 0, negated}); }
  /// Adds word characters. Oniguruma counts six signs of Latin-1 (superscript digits and
  /// fractions) as word characters, but not between brackets.
  void add_word(bool negated, bool in_brackets) {
    add_item({in_brackets ? Item::WordInBrackets : Item::Word, 0, negated});
  }
  void negate() { negated_ = !negated_; }
  /// Must be called once, when the set is complete.
  void finish() {
    for (uint32_t point = 0; point < 128; ++point) ascii_[point] = holds(point);
  }

  bool operator[](uint32_t point) const {
    return point < 128 ? ascii_[point] : holds(point);
  }

 private:
  struct Range {
    uint32_t first;
    uint32_t last;
  };
  struct Item {
    enum Kind : uint8_t { Categories, Space, Word, WordInBrackets } kind;
    uint32_t mask;
    bool negated;
  };
  void add_item(Item item) { items_.push_back(item); }
  bool holds(uint32_t point) const {
    for (const Range& range : ranges_) {
      if (point >= range.first && point <= range.last) return !negated_;
    }
    for (const Item& item : items_) {
      bool inside = false;
      if (item.kind == Item::Categories) {
        inside = (item.mask >> data_->category(point)) & 1;
      } else if (item.kind == Item::Space) {
        inside = ((*classes_)[point] & kSpace) != 0;
      } else {
        const bool sign = point == 0xB2 || point == 0xB3 || point == 0xB9 ||
                          (point >= 0xBC && point <= 0xBE);
        inside = (data_->properties(point) & kRegexWord) != 0 &&
                 !(sign && item.kind == Item::WordInBrackets);
      }
      if (inside != item.negated) return !negated_;
    }
    return negated_;
  }

  const UnicodeData* data_ = &unicode_data();
  const CharClasses* classes_ = &char_classes();
  std::vector<Range> ranges_;
  std::vector<Item> items_;
  bool negated_ = false;
  std::bitset<128> ascii_;
};

/// A regular expression as in published tokenizers, with the meaning of Hugging Face's
/// engine (Oniguruma, Ruby syntax). Supported are literals, classes, \p{..} of general
/// categories, alternation, groups, (?i:..), look-ahead, greedy, lazy and possessive
/// repetition, and ^ $ \A \z. Immutable; any number of threads may use a regex.
class Regex {
 public:
  /// Throws InputError that names what is not supported and its place.
  explicit Regex(std::string_view pattern);
  /// Returns a regex that finds exactly `text`, which is not empty.
  static Regex literal(std::string_view text);

  struct Match {
    size_t start;
    size_t end;
  };
  /// Returns the first match at or after `from` in valid UTF-8. Throws InputError if the
  /// search takes more steps than any sensible pattern needs.
  std::optional<Match> find(std::string_view text, size_t from) const;
  /// Returns the text with every match replaced.
  std::string replace_all(std::string_view text, std::string_view content) const;

  enum class Op : uint8_t {
    Set,      ///< one code point of set a
    SetStar,  ///< as many code points of set a as possible, given back one by one
    Split,    ///< tries a, then b
    Jump,     ///< goes on at a
    Look,     ///< the following program must match (with b, must not); goes on at a
    Atomic,   ///< runs the following program without giving back; goes on at a
    LineStart,
    LineEnd,
    TextStart,
    TextEnd,
    Done,
  };
  struct Instruction {
    Op op;
    uint32_t a = 0;
    uint32_t b = 0;
  };
  struct Program {
    std::vector<Instruction> code;
    std::vector<CharSet> sets;
  };

 private:
  Regex() = default;
  std::string literal_;
  std::string pattern_;  // the pattern as messages show it
  Program program_;
};

/// Parses and compiles a pattern (regex_parser.cpp).
Regex::Program compile_regex(std::string_view pattern);

}  // namespace longhaul::tokenizer
