#pragma once

#include <string>
#include <vector>

#include "longhaul/data/tokenizer/tokenizer.h"

namespace longhaul::data {

/// Text of ids that come one by one. What it gives together is what decode gives for all
/// ids at once, wherever spaces are dropped or characters are spread over several tokens;
/// only where bytes form no characters can it differ. One thread's; the tokenizer must
/// outlive it.
class StreamDecoder {
 public:
  /// `before`: ids that the text follows (a prompt), which are not given again.
  StreamDecoder(const Tokenizer& tokenizer, bool skip_special_tokens,
                const std::vector<TokenId>& before = {});

  /// The text that is certain now and was not before; may be empty.
  std::string add(TokenId id);
  /// What was held back, an unfinished character as U+FFFD.
  std::string finish();

 private:
  std::string take(std::string text);

  const Tokenizer& tokenizer_;
  bool skip_special_tokens_;
  std::vector<TokenId> window_;  // ids that decide what comes next
  size_t given_ = 0;             // the first so many have been given
  std::string prefix_;           // their text
  int open_ = 0;                 // ids in a row after which a character is unfinished
};

}  // namespace longhaul::data
