#pragma once

#include <string>
#include <vector>

#include "longhaul/tokenizer/tokenizer.h"

namespace longhaul::tokenizer {

/// Decodes ids that come one by one. All texts together are what decode gives for all ids
/// at once, even if spaces are dropped, characters are spread over several tokens, or
/// each token ends one character and begins the next. Only for bytes that form no
/// characters the texts may differ. For one thread; the tokenizer must outlive the
/// decoder.
class StreamDecoder {
 public:
  /// `before` are ids in front (a prompt), whose text is not returned.
  StreamDecoder(const Tokenizer& tokenizer, bool skip_special_tokens,
                const std::vector<TokenId>& before = {});

  /// Returns the text that has become certain; may be empty.
  std::string add(TokenId id);
  /// Returns the text that was held back, with U+FFFD for an unfinished character.
  std::string finish();

 private:
  std::string text_from(size_t first) const;
  std::string take(std::string text, size_t open);
  std::string take_broken();
  void forget(size_t first, size_t open);

  const Tokenizer& tokenizer_;
  bool skip_special_tokens_;
  std::vector<TokenId> window_;  // ids that decide what comes next
  std::string given_;            // the part of their text that was returned
  size_t mark_ = 0;              // first ids of the window whose whole text was returned
  int broken_ = 0;               // ids in a row after which the earlier text changed
};

}  // namespace longhaul::tokenizer
