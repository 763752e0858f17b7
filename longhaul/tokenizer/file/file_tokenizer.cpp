#include "longhaul/tokenizer/file/file_tokenizer.h"

#include <simdjson.h>

#include <unordered_set>

#include "longhaul/base/error.h"
#include "longhaul/base/text.h"

namespace longhaul::tokenizer {

void FileTokenizer::encode(std::string_view text, bool add_special_tokens,
                           std::vector<TokenId>& out) const {
  if (!simdjson::validate_utf8(text.data(), text.size())) {
    fail_input("tokenizer", "the text is not UTF-8 at byte {}",
               find_invalid_utf8(text).value_or(0));
  }
  const auto append = [&](const std::vector<TokenId>& ids) {
    if (add_special_tokens) out.insert(out.end(), ids.begin(), ids.end());
  };
  append(affixes_.prefix);
  encode_text(text, out);
  append(affixes_.suffix);
}

std::optional<std::string> FileTokenizer::id_to_token(TokenId id) const {
  const TokenTable::Entry* entry = table_.find(id);
  if (!entry) return std::nullopt;
  return entry->token;
}

TokenTable::TokenTable(Vocabulary vocabulary, const std::vector<AddedToken>& added,
                       Equals equals) {
  entries_.resize(vocabulary.size());
  for (size_t id = 0; id < entries_.size(); ++id) {
    if (vocabulary[id]) entries_[id] = {true, false, false, std::move(*vocabulary[id])};
  }
  std::unordered_set<std::string_view> special;
  for (const AddedToken& token : added) {
    if (token.special) special.insert(token.content);
    if (token.id >= entries_.size()) entries_.resize(size_t{token.id} + 1);
    entries_[token.id] = {true, true, token.special, token.content};
  }
  for (size_t id = 0; id < entries_.size(); ++id) {
    if (!entries_[id].known) continue;
    // As in Hugging Face, the text decides whether a token is special, so that two tokens
    // with the same text are alike.
    if (special.contains(entries_[id].token)) entries_[id].special = true;
    const auto [found, fresh] =
        ids_.emplace(entries_[id].token, static_cast<uint32_t>(id));
    if (!fresh && equals == Equals::Last) found->second = static_cast<uint32_t>(id);
  }
}

const TokenTable::Entry& TokenTable::at(uint32_t id) const {
  if (const Entry* entry = find(id)) return *entry;
  fail_input("tokenizer", "no token has the id {}; ids are below {}", id,
             entries_.size());
}

std::optional<uint32_t> TokenTable::id_of(std::string_view token) const {
  const auto found = ids_.find(token);
  if (found == ids_.end()) return std::nullopt;
  return found->second;
}

}  // namespace longhaul::tokenizer
