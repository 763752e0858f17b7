#include "longhaul/tokenizer/split/added_tokens.h"

#include <algorithm>

#include "longhaul/base/error.h"

namespace longhaul::tokenizer {

AddedTokenFinder::AddedTokenFinder(
    const std::vector<AddedToken>& added, bool normalized,
    const std::function<std::string(std::string)>& normalize)
    : accepts_{-1} {
  for (const AddedToken& token : added) {
    if (token.normalized != normalized) continue;
    const std::string pattern = normalized ? normalize(token.content) : token.content;
    if (pattern.empty()) {
      // Hugging Face would find the empty token between any two bytes of every text.
      fail_input("tokenizer",
                 "the normalizer leaves nothing of the added token \"{}\"; give it "
                 "\"normalized\": false in tokenizer.json",
                 token.content);
    }
    uint32_t node = 0;
    for (const char c : pattern) {
      const auto byte = static_cast<uint8_t>(c);
      uint32_t& next = edges_[(uint64_t{node} << 8) | byte];
      if (next == 0) {
        next = static_cast<uint32_t>(accepts_.size());
        accepts_.push_back(-1);
      }
      node = next;
    }
    starts_[static_cast<uint8_t>(pattern.front())] = true;
    only_start_ = static_cast<uint8_t>(pattern.front());
    if (accepts_[node] < 0) accepts_[node] = static_cast<int32_t>(tokens_.size());
    tokens_.push_back(token);
  }
  if (std::count(starts_.begin(), starts_.end(), true) != 1) only_start_ = -1;
}

bool AddedTokenFinder::find(std::string_view text, size_t from, Match& match) const {
  for (size_t pos = from; pos < text.size(); ++pos) {
    if (only_start_ >= 0) {
      pos = text.find(static_cast<char>(only_start_), pos);
      if (pos == std::string_view::npos) return false;
    }
    if (!starts_[static_cast<uint8_t>(text[pos])]) continue;
    uint32_t node = 0;
    int32_t found = -1;
    for (size_t end = pos; end < text.size();) {
      const uint32_t* next =
          edges_.find((uint64_t{node} << 8) | static_cast<uint8_t>(text[end]));
      if (!next) break;
      node = *next;
      ++end;
      if (accepts_[node] >= 0) {
        found = accepts_[node];
        match = {pos, end, static_cast<size_t>(found)};
      }
    }
    if (found >= 0) return true;
  }
  return false;
}

bool AddedTokenFinder::stands_alone(const CharClasses& classes, std::string_view text,
                                    const Match& match) const {
  const auto is_word = [&](CodePoint point) {
    return (classes[point.value] & kWord) != 0;
  };
  if (match.start > 0 && is_word(decode_before(text.data(), match.start))) return false;
  return match.end == text.size() || !is_word(decode_at(text.data(), match.end));
}

namespace {

// Throws InputError for a text in which one added token takes blanks that the next added
// token has taken too. Hugging Face's tokenizers panic on such a text, so that there are
// no ids to agree with.
[[noreturn]] void fail_swallowed(const AddedToken& token, const AddedToken& before,
                                 size_t bytes) {
  fail_input("tokenizer",
             "the added token \"{}\" (rstrip) has taken {} bytes after the end of \"{}\" "
             "(lstrip), which follows it; give both tokens rstrip, or neither, in "
             "tokenizer.json",
             before.content, bytes, token.content);
}

}  // namespace

void AddedTokenFinder::split(const CharClasses& classes, std::string_view text,
                             std::vector<Part>& parts) const {
  parts.clear();
  size_t done = 0;
  size_t before = 0;  // the token that ends at `done`
  Match match{};
  for (size_t from = 0; find(text, from, match); from = match.end) {
    const AddedToken& token = tokens_[match.token];
    if (token.single_word && !stands_alone(classes, text, match)) continue;
    size_t start = match.start;
    size_t end = match.end;
    while (token.lstrip && start > 0) {
      const CodePoint point = decode_before(text.data(), start);
      if (!(classes[point.value] & kSpace)) break;
      start -= point.bytes;
    }
    // Spaces that the token before has taken stay with that token.
    if (token.lstrip) start = std::max(start, done);
    while (token.rstrip && end < text.size()) {
      const CodePoint point = decode_at(text.data(), end);
      if (!(classes[point.value] & kSpace)) break;
      end += point.bytes;
    }
    if (start > end) fail_swallowed(token, tokens_[before], start - end);
    if (done < start) parts.push_back({done, start, -1});
    // Skip a token if the one before has taken all of it.
    if (start < end) parts.push_back({start, end, token.id});
    done = end;
    before = match.token;
  }
  if (done != text.size()) parts.push_back({done, text.size(), -1});
}

}  // namespace longhaul::tokenizer
