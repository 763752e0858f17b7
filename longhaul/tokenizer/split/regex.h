#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "longhaul/tokenizer/unicode/char_set.h"

namespace longhaul::tokenizer {

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
