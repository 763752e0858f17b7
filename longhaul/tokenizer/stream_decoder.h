#pragma once

#include <string>
#include <vector>

#include "longhaul/tokenizer/tokenizer.h"

namespace longhaul::tokenizer {

/// Text of ids that come one by one. What it gives together is what decode gives for all
/// ids at once, wherever spaces are dropped, characters are spread over several tokens,
/// or each token ends one character and begins the next; only where bytes form no
/// characters can it differ. One thread's; the tokenizer must outlive it.
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
  std::string text_from(size_t first) const;
  std::string take(std::string text, size_t open);
  std::string take_broken();
  void forget(size_t first, size_t open);

  const Tokenizer& tokenizer_;
  bool skip_special_tokens_;
  std::vector<TokenId> window_;  // ids that decide what comes next
  std::string given_;            // of their text, what has been given
  size_t mark_ = 0;              // of the first so many, all was given at once
  int broken_ = 0;               // ids in a row after which the text is another
};

}  // namespace longhaul::tokenizer
