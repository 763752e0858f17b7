#pragma once

#include <string>
#include <vector>

#include "longhaul/base/json.h"
#include "longhaul/tokenizer/tokenizer.h"

namespace longhaul::tokenizer {

/// Compares the tokenizer of `file` with what AutoTokenizer of transformers 5 would make
/// of it and of the files beside it: tokenizer_config.json, special_tokens_map.json,
/// added_tokens.json and config.json. AutoTokenizer may add tokens, or build a class of
/// its own instead of reading the file.
///
/// Returns a sentence for each difference, which also says what to do, and none if both
/// give the same ids. `root` is the content of a tokenizer.json, else null. Throws
/// InputError if a file beside the tokenizer is no JSON object.
std::vector<std::string> auto_tokenizer_differences(const fs::path& file,
                                                    const Json& root,
                                                    const Tokenizer& tokenizer);

/// Throws InputError if AutoTokenizer gives the pieces of a SentencePiece `.model` other
/// ids than the file, since a new store would hold the file's ids. A store that exists
/// already is still used with the file's ids.
void refuse_moved_pieces(const Tokenizer& tokenizer);

}  // namespace longhaul::tokenizer
