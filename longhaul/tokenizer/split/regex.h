#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "longhaul/tokenizer/unicode/char_set.h"

namespace longhaul::tokenizer {

/// The regular expressions of published tokenizers, with the meaning that Hugging Face's
/// engine (Oniguruma, Ruby syntax) gives them: literals, classes, \p{..} of general
/// categories, alternation, groups, (?i:..), look-ahead, greedy, lazy and possessive
/// repetition, ^ $ \A \z. Immutable; any number of threads.
class Regex {
 public:
  /// InputError names what is not supported and where it stands.
  explicit Regex(std::string_view pattern);
  /// Finds exactly `text`, which is not empty.
  static Regex literal(std::string_view text);

  struct Match {
    size_t start;
    size_t end;
  };
  /// The first match at or after `from` of valid UTF-8. InputError when the search takes
  /// more steps than any sensible pattern needs.
  std::optional<Match> find(std::string_view text, size_t from) const;
  /// The text with every match replaced.
  std::string replace_all(std::string_view text, std::string_view content) const;

  enum class Op : uint8_t {
    Set,      ///< one code point of set a
    SetStar,  ///< as many as there are of set a, giving back one by one
    Split,    ///< to a, then to b
    Jump,     ///< to a
    Look,     ///< the program behind must match (b: must not); goes on at a
    Atomic,   ///< the program behind, without giving back; goes on at a
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
  std::string pattern_;  // for messages
  Program program_;
};

/// Parses and compiles a pattern (regex_parser.cpp).
Regex::Program compile_regex(std::string_view pattern);

}  // namespace longhaul::tokenizer
