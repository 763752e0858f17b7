#include "longhaul/data/tokenizer/stream_decoder.h"

#include <algorithm>

namespace longhaul::data {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";
/// A character has at most four bytes, each at worst a token: what is still open after
/// so many ids never becomes a character.
constexpr int kLongestOpen = 8;
/// Ids before a prompt's end that can matter for what follows it.
constexpr size_t kContext = 8;

}  // namespace

StreamDecoder::StreamDecoder(const Tokenizer& tokenizer, bool skip_special_tokens,
                             const std::vector<TokenId>& before)
    : tokenizer_(tokenizer), skip_special_tokens_(skip_special_tokens) {
  const size_t context = std::min(before.size(), kContext);
  window_.assign(before.end() - static_cast<std::ptrdiff_t>(context), before.end());
  given_ = window_.size();
  prefix_ = tokenizer_.decode(window_, skip_special_tokens_);
}

std::string StreamDecoder::add(TokenId id) {
  window_.push_back(id);
  std::string text = tokenizer_.decode(window_, skip_special_tokens_);
  open_ = text.ends_with(kReplacement) ? open_ + 1 : 0;
  if ((open_ > 0 && open_ < kLongestOpen) || text.size() <= prefix_.size()) return {};
  return take(std::move(text));
}

std::string StreamDecoder::finish() {
  std::string text = tokenizer_.decode(window_, skip_special_tokens_);
  if (text.size() <= prefix_.size()) return {};
  return take(std::move(text));
}

/// The last ids given stay as context: how a token reads can depend on the one before.
std::string StreamDecoder::take(std::string text) {
  const bool continues = text.starts_with(prefix_);
  std::string fresh = continues ? text.substr(prefix_.size()) : std::string();
  if (!continues) {
    // Bytes that were a character have become none: what has been given stays given.
    fresh = tokenizer_.decode(
        {window_.begin() + static_cast<std::ptrdiff_t>(given_), window_.end()},
        skip_special_tokens_);
  }
  window_.erase(window_.begin(), window_.begin() + static_cast<std::ptrdiff_t>(given_));
  given_ = window_.size();
  open_ = 0;
  prefix_ = tokenizer_.decode(window_, skip_special_tokens_);
  return fresh;
}

}  // namespace longhaul::data
