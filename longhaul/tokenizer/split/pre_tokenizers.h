#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "longhaul/tokenizer/split/patterns.h"
#include "longhaul/tokenizer/split/regex.h"

namespace longhaul::tokenizer {

/// Text between added tokens on its way to the model, with the remaining pieces in order.
/// No piece is empty.
struct Pieces {
  struct Piece {
    size_t start;
    size_t end;
    size_t at_start;  ///< bytes of the piece that NormalText::at_start counts
  };
  std::string text;
  std::vector<Piece> pieces;

  std::string_view view(const Piece& piece) const {
    return std::string_view(text).substr(piece.start, piece.end - piece.start);
  }
};

/// One pre-tokenizer of a tokenizer.json. Any number of threads may call a pre-tokenizer.
using PreTokenizer = std::function<void(Pieces&)>;
using PreTokenizers = std::vector<PreTokenizer>;

/// What happens to the matches of a pattern.
enum class SplitBehavior {
  Removed,
  Isolated,
  MergedWithPrevious,
  MergedWithNext,
  Contiguous,
};
std::optional<SplitBehavior> split_behavior(std::string_view name);

/// Returns a split by a pattern. `invert`: the text between matches counts as a match.
PreTokenizer make_split(Regex pattern, SplitBehavior behavior, bool invert);
/// Returns a split by a known pattern, which has a faster matcher.
PreTokenizer make_known_split(SplitPattern pattern);
PreTokenizer make_byte_level(bool add_prefix_space, bool use_regex);
PreTokenizer make_digits(bool individual);
PreTokenizer make_punctuation(SplitBehavior behavior);
PreTokenizer make_whitespace();
PreTokenizer make_whitespace_split();
PreTokenizer make_bert_pre_tokenizer();
PreTokenizer make_delimiter_split(uint32_t delimiter);

enum class PrependScheme { Always, First, Never };
struct MetaspaceOptions {
  uint32_t replacement = 0x2581;
  PrependScheme scheme = PrependScheme::Always;
  bool split = true;
};
PreTokenizer make_metaspace(const MetaspaceOptions& options);

}  // namespace longhaul::tokenizer
