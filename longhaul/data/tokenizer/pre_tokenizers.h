#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "longhaul/data/tokenizer/regex.h"
#include "longhaul/data/tokenizer/split.h"

namespace longhaul::data {

/// Text between added tokens on its way to the model: a text and the pieces of it that
/// are left, in order, none empty.
struct Pieces {
  struct Piece {
    size_t start;
    size_t end;
    size_t at_start;  ///< how many of its bytes NormalText::at_start counts
  };
  std::string text;
  std::vector<Piece> pieces;

  std::string_view view(const Piece& piece) const {
    return std::string_view(text).substr(piece.start, piece.end - piece.start);
  }
};

/// One pre-tokenizer of a tokenizer.json. Immutable; any number of threads.
class PreTokenizer {
 public:
  virtual ~PreTokenizer() = default;
  virtual void apply(Pieces& pieces) const = 0;
};

using PreTokenizers = std::vector<std::unique_ptr<PreTokenizer>>;

/// What happens to the matches of a pattern.
enum class SplitBehavior {
  Removed,
  Isolated,
  MergedWithPrevious,
  MergedWithNext,
  Contiguous,
};
std::optional<SplitBehavior> split_behavior(std::string_view name);

/// `invert`: what lies between the matches counts as match.
std::unique_ptr<PreTokenizer> make_split(Regex pattern, SplitBehavior behavior,
                                         bool invert);
/// The pieces of a known pattern, which has a faster matcher of its own.
std::unique_ptr<PreTokenizer> make_known_split(SplitPattern pattern);
std::unique_ptr<PreTokenizer> make_byte_level(bool add_prefix_space, bool use_regex);
std::unique_ptr<PreTokenizer> make_digits(bool individual);
std::unique_ptr<PreTokenizer> make_punctuation(SplitBehavior behavior);
std::unique_ptr<PreTokenizer> make_whitespace();
std::unique_ptr<PreTokenizer> make_whitespace_split();
std::unique_ptr<PreTokenizer> make_bert_pre_tokenizer();
std::unique_ptr<PreTokenizer> make_delimiter_split(uint32_t delimiter);

enum class PrependScheme { Always, First, Never };
struct MetaspaceOptions {
  uint32_t replacement = 0x2581;
  PrependScheme scheme = PrependScheme::Always;
  bool split = true;
};
std::unique_ptr<PreTokenizer> make_metaspace(const MetaspaceOptions& options);

}  // namespace longhaul::data
