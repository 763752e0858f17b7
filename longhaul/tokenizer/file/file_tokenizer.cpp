#include "longhaul/tokenizer/file/file_tokenizer.h"

#include <simdjson.h>

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

}  // namespace longhaul::tokenizer
