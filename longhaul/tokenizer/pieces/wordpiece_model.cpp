#include "longhaul/base/text.h"
#include "longhaul/tokenizer/pieces/piece_model.h"

namespace longhaul::tokenizer {

WordPieceModel::WordPieceModel(const WordPieceSpec& spec)
    : unknown_(spec.unknown), max_chars_(spec.max_chars) {
  for (size_t i = 0; i < spec.vocab.size(); ++i) {
    if (!spec.vocab[i] || spec.vocab[i]->empty()) continue;
    const std::string_view token = *spec.vocab[i];
    const auto id = static_cast<uint32_t>(i);
    starts_.insert(token, id);
    if (token.starts_with(spec.prefix) && token.size() > spec.prefix.size()) {
      inside_.insert(token.substr(spec.prefix.size()), id);
    }
  }
}

void WordPieceModel::encode_word(std::string_view word,
                                 std::vector<uint32_t>& out) const {
  const size_t start = out.size();
  const auto chars = static_cast<uint64_t>(count_code_points(word));
  bool covered = chars <= max_chars_;
  for (size_t pos = 0; covered && pos < word.size();) {
    const ByteTrie::Found found = (pos == 0 ? starts_ : inside_).longest(word, pos);
    covered = found.value != ByteTrie::kNone;
    if (covered) out.push_back(found.value);
    pos = found.end;
  }
  if (covered) return;
  out.resize(start);
  out.push_back(unknown_);
}

}  // namespace longhaul::tokenizer
