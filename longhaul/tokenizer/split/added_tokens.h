#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "longhaul/tokenizer/tables/flat_maps.h"
#include "longhaul/tokenizer/tokenizer.h"
#include "longhaul/tokenizer/unicode/unicode.h"

namespace longhaul::tokenizer {

struct AddedToken {
  uint32_t id = 0;
  std::string content;
  bool special = false;
  bool single_word = false;
  bool lstrip = false;
  bool rstrip = false;
  bool normalized = false;
};

/// Finds added tokens in a text: the leftmost first, and the longest of those that start
/// at the same place.
class AddedTokenFinder {
 public:
  /// Takes the tokens of `added` that are found in normalized text, or those that are
  /// not. `normalize` normalizes a text. Throws InputError if a normalized token is
  /// empty.
  AddedTokenFinder(const std::vector<AddedToken>& added, bool normalized,
                   const std::function<std::string(std::string)>& normalize);

  struct Part {
    size_t start;
    size_t end;
    int64_t id;  ///< -1: text between tokens
  };
  bool empty() const { return tokens_.empty(); }
  /// Writes the parts of `text` in order to `parts`, which is cleared first.
  void split(const CharClasses& classes, std::string_view text,
             std::vector<Part>& parts) const;
  /// Appends to `out` the ids of the added tokens in `text`, and calls
  /// between(piece, start) for each stretch of text before, between and after them.
  template <typename Between>
  void encode_around(const CharClasses& classes, std::string_view text,
                     std::vector<TokenId>& out, Between between) const {
    std::vector<Part> parts;
    split(classes, text, parts);
    for (const Part& part : parts) {
      if (part.id >= 0) {
        out.push_back(static_cast<TokenId>(part.id));
      } else {
        between(text.substr(part.start, part.end - part.start), part.start);
      }
    }
  }

 private:
  struct Match {
    size_t start;
    size_t end;
    size_t token;
  };
  bool find(std::string_view text, size_t from, Match& match) const;
  bool stands_alone(const CharClasses& classes, std::string_view text,
                    const Match& match) const;

  std::vector<AddedToken> tokens_;
  std::array<bool, 256> starts_{};
  int only_start_ = -1;           // the first byte of all tokens, if it is the same
  FlatMap<uint32_t> edges_;       // (node, byte) -> node
  std::vector<int32_t> accepts_;  // node -> token, or -1
};

}  // namespace longhaul::tokenizer
