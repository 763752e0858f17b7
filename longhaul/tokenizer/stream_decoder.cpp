#include "longhaul/tokenizer/stream_decoder.h"

#include <algorithm>

namespace longhaul::tokenizer {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";
/// A character has at most four bytes. The last three of a text can be the beginning of
/// one, which reads as three U+FFFD if each byte is a token.
constexpr size_t kMostOpen = 3;
/// A text that no longer begins with the returned text is held back for fewer than this
/// number of ids. After so many ids no other id makes it begin with that text again.
constexpr int kLongestBroken = 8;
/// Earlier ids that can matter for the text of an id.
constexpr size_t kContext = 8;
/// If characters stay open for so many ids, the ids before the last kContext are dropped.
constexpr size_t kLongestWindow = 64;

/// Returns the bytes at the end that more ids can turn into a character.
size_t open_bytes(std::string_view text) {
  size_t open = 0;
  while (open < kMostOpen && text.ends_with(kReplacement)) {
    text.remove_suffix(kReplacement.size());
    ++open;
  }
  return open * kReplacement.size();
}

}  // namespace

StreamDecoder::StreamDecoder(const Tokenizer& tokenizer, bool skip_special_tokens,
                             const std::vector<TokenId>& before)
    : tokenizer_(tokenizer), skip_special_tokens_(skip_special_tokens) {
  // The first token of a text can be decoded in another way than a later token. The ids
  // in the window must therefore already have a text.
  for (size_t count = kContext; given_.empty(); count *= 2) {
    count = std::min(count, before.size());
    window_.assign(before.end() - static_cast<std::ptrdiff_t>(count), before.end());
    given_ = text_from(0);
    if (count == before.size()) break;
  }
  mark_ = window_.size();
}

std::string StreamDecoder::add(TokenId id) {
  window_.push_back(id);
  std::string text = text_from(0);
  const size_t open = open_bytes(text);
  if (!text.starts_with(given_)) {
    if (open > 0 && ++broken_ < kLongestBroken) return {};
    return take_broken();
  }
  broken_ = 0;
  std::string fresh = take(std::move(text), open);
  if (open == 0 && !fresh.empty()) {
    forget(mark_, 0);
  } else if (window_.size() > kLongestWindow && open > 0) {
    forget(window_.size() - kContext, open);
  } else if (window_.size() > kLongestWindow && !given_.empty()) {
    // An id without a text is left out (a special token that is skipped). If such ids
    // pushed the last text out of the window, the next text would count as the first.
    window_.pop_back();
  }
  return fresh;
}

std::string StreamDecoder::finish() {
  std::string text = text_from(0);
  return text.starts_with(given_) ? take(std::move(text), 0) : take_broken();
}

std::string StreamDecoder::text_from(size_t first) const {
  return tokenizer_.decode(
      {window_.begin() + static_cast<std::ptrdiff_t>(first), window_.end()},
      skip_special_tokens_);
}

std::string StreamDecoder::take(std::string text, size_t open) {
  const size_t certain = std::max(text.size() - open, given_.size());
  std::string fresh = text.substr(given_.size(), certain - given_.size());
  text.resize(certain);
  given_ = std::move(text);
  return fresh;
}

/// Returns the text of the ids since the mark. It is called when the decoded text no
/// longer begins with the text that was returned, which cannot be taken back.
std::string StreamDecoder::take_broken() {
  std::string fresh = text_from(mark_);
  forget(mark_, 0);
  broken_ = 0;
  return fresh;
}

/// Drops the ids before `first`. All text of the rest except the last `open` bytes counts
/// as returned.
void StreamDecoder::forget(size_t first, size_t open) {
  window_.erase(window_.begin(), window_.begin() + static_cast<std::ptrdiff_t>(first));
  mark_ = window_.size();
  given_ = text_from(0);
  given_.resize(given_.size() - std::min(open, given_.size()));
}

}  // namespace longhaul::tokenizer
