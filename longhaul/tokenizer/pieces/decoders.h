#pragma once

#include <functional>
#include <string>
#include <vector>

#include "longhaul/tokenizer/split/pre_tokenizers.h"
#include "longhaul/tokenizer/split/regex.h"

namespace longhaul::tokenizer {

/// One decoder of a tokenizer.json, which turns tokens as written into parts of the text.
/// The parts are joined in the end. Any number of threads may call a decoder.
using TokenDecoder = std::function<void(std::vector<std::string>& tokens)>;
using TokenDecoders = std::vector<TokenDecoder>;

TokenDecoder make_byte_level_decoder();
TokenDecoder make_word_piece_decoder(std::string prefix, bool cleanup);
TokenDecoder make_metaspace_decoder(uint32_t replacement, PrependScheme scheme);
TokenDecoder make_byte_fallback_decoder();
TokenDecoder make_fuse_decoder();
TokenDecoder make_replace_decoder(Regex pattern, std::string content);
/// Removes `content` from each token, at most `start` times in front and `stop` times
/// behind.
TokenDecoder make_strip_decoder(uint32_t content, size_t start, size_t stop);
TokenDecoder make_bpe_decoder(std::string suffix);

}  // namespace longhaul::tokenizer
