#pragma once

#include <string>
#include <vector>

#include "longhaul/base/json.h"
#include "longhaul/tokenizer/tokenizer.h"

namespace longhaul::tokenizer {

/// What AutoTokenizer of transformers 5 would do otherwise than this program with the
/// tokenizer of `file`, because of what stands beside it (tokenizer_config.json,
/// special_tokens_map.json, added_tokens.json, config.json): tokens that it would add,
/// and a class that it would build anew instead of reading the file. A sentence for each,
/// with what to do; nothing where both give the same ids. `root`: of a tokenizer.json its
/// content, else null. InputError where a file beside it is no JSON object.
std::vector<std::string> auto_tokenizer_differences(const fs::path& file,
                                                    const Json& root,
                                                    const Tokenizer& tokenizer);

}  // namespace longhaul::tokenizer
