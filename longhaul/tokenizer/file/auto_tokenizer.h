#pragma once

#include <string>
#include <vector>

#include "longhaul/base/json.h"
#include "longhaul/tokenizer/tokenizer.h"

namespace longhaul::tokenizer {

/// Returns a sentence for each way in which AutoTokenizer of transformers 5 would treat
/// the tokenizer of `file` differently, because of the files beside it
/// (tokenizer_config.json, special_tokens_map.json, added_tokens.json, config.json):
/// tokens that AutoTokenizer would add, or a class that it would build instead of reading
/// the file. Each sentence says what to do. Returns none if both give the same ids.
/// `root` is the content of a tokenizer.json, else null. Throws InputError if a file
/// beside the tokenizer is no JSON object.
std::vector<std::string> auto_tokenizer_differences(const fs::path& file,
                                                    const Json& root,
                                                    const Tokenizer& tokenizer);

}  // namespace longhaul::tokenizer
