#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "longhaul/tokenizer/file/file_tokenizer.h"
#include "longhaul/tokenizer/pieces/bpe_model.h"
#include "longhaul/tokenizer/split/added_tokens.h"
#include "longhaul/tokenizer/split/patterns.h"

namespace longhaul::tokenizer {

/// One pre-tokenizer of a sequence: adds a space in front if there is none, then splits.
struct SplitStep {
  bool add_prefix_space = false;
  SplitPattern pattern = SplitPattern::None;
};

/// The tokenizer.json of a byte-level BPE, parsed and checked.
struct TokenizerSpec {
  BpeSpec model;
  std::vector<AddedToken> added;
  bool nfc = false;
  std::vector<SplitStep> steps;
  Affixes affixes;
  bool byte_level_decoder = false;  ///< false: decoding joins tokens by spaces
};

/// Parses the text of a tokenizer.json; `name` is its path, for messages. Throws
/// InputError that says what is wrong and where.
Json read_tokenizer_root(std::string_view text, std::string_view name);
/// Makes a tokenizer of what read_tokenizer_root() returns. Truncation and padding are
/// not read: transformers switches both off unless a call asks for them. Throws
/// InputError that names the component that is not supported, or what is wrong and where.
std::unique_ptr<FileTokenizer> tokenizer_of(const Json& root, std::string_view name);

}  // namespace longhaul::tokenizer
