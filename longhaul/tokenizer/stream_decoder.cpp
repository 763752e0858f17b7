#include "longhaul/tokenizer/stream_decoder.h"

#include <algorithm>

namespace longhaul::tokenizer {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";
/// A character has at most four bytes: the last three of a text can be the begin of one,
/// and read as so many U+FFFD where each is a token of its own.
constexpr size_t kMostOpen = 3;
/// Ids after which a run of bytes that is no text any more never becomes text again.
constexpr int kLongestBroken = 8;
/// Ids before an id that can matter for how it reads.
constexpr size_t kContext = 8;
/// Where characters stay open that long the ids before the last kContext are let go.
constexpr size_t kLongestWindow = 64;

/// Bytes at the end that more ids can turn into a character.
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
  // The first token of a text can read otherwise than the others: what stands before must
  // have a text itself.
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
  } else if (window_.size() > kLongestWindow) {
    forget(window_.size() - kContext, open);
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

/// Bytes that were characters have become none: what has been given stays given.
std::string StreamDecoder::take_broken() {
  std::string fresh = text_from(mark_);
  forget(mark_, 0);
  broken_ = 0;
  return fresh;
}

/// The ids before `first` go; of the rest all is given but the last `open` bytes.
void StreamDecoder::forget(size_t first, size_t open) {
  window_.erase(window_.begin(), window_.begin() + static_cast<std::ptrdiff_t>(first));
  mark_ = window_.size();
  given_ = text_from(0);
  given_.resize(given_.size() - std::min(open, given_.size()));
}

}  // namespace longhaul::tokenizer
