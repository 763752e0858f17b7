#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "longhaul/data/tokenizer/pre_tokenizers.h"
#include "longhaul/data/tokenizer/regex.h"

namespace longhaul::data {

/// One decoder of a tokenizer.json: tokens as written to parts of the text, which are
/// joined in the end. Immutable; any number of threads.
class TokenDecoder {
 public:
  virtual ~TokenDecoder() = default;
  virtual void apply(std::vector<std::string>& tokens) const = 0;
};

using TokenDecoders = std::vector<std::unique_ptr<TokenDecoder>>;

std::unique_ptr<TokenDecoder> make_byte_level_decoder();
std::unique_ptr<TokenDecoder> make_word_piece_decoder(std::string prefix, bool cleanup);
std::unique_ptr<TokenDecoder> make_metaspace_decoder(uint32_t replacement,
                                                     PrependScheme scheme);
std::unique_ptr<TokenDecoder> make_byte_fallback_decoder();
std::unique_ptr<TokenDecoder> make_fuse_decoder();
std::unique_ptr<TokenDecoder> make_replace_decoder(Regex pattern, std::string content);
/// Cuts `content` off, at most so many times at each end of each token.
std::unique_ptr<TokenDecoder> make_strip_decoder(uint32_t content, size_t start,
                                                 size_t stop);
std::unique_ptr<TokenDecoder> make_bpe_decoder(std::string suffix);

}  // namespace longhaul::data
