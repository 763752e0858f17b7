#include "longhaul/tokenizer/file/byte_level_tokenizer.h"

#include "longhaul/tokenizer/unicode/byte_alphabet.h"
#include "longhaul/tokenizer/unicode/unicode_data.h"

namespace longhaul::tokenizer {
namespace {

AddedTokenFinder make_finder(const TokenizerSpec& spec, bool normalized) {
  return {spec.added, normalized, [&](std::string text) {
            return spec.nfc ? unicode_data().normalize(text, NormalForm::C) : text;
          }};
}

}  // namespace

ByteLevelTokenizer::ByteLevelTokenizer(TokenizerSpec spec)
    : FileTokenizer(TokenTable(spec.model.vocab, spec.added, TokenTable::Equals::First),
                    spec.affixes, fingerprint_of(spec)),
      classes_(char_classes()),
      model_(spec.model),
      raw_tokens_(make_finder(spec, false)),
      normalized_tokens_(make_finder(spec, true)),
      nfc_(spec.nfc),
      steps_(std::move(spec.steps)),
      byte_level_decoder_(spec.byte_level_decoder) {
  // A last step without a pattern and without a prefix space, such as ByteLevel behind a
  // split, changes nothing.
  while (steps_.size() > 1 && steps_.back().pattern == SplitPattern::None &&
         !steps_.back().add_prefix_space) {
    steps_.pop_back();
  }
  decoded_.resize(table().size());
  for (size_t id = 0; id < decoded_.size(); ++id) {
    // As in Hugging Face, the byte alphabet also maps the characters of added tokens to
    // bytes.
    if (const TokenTable::Entry* entry = table().find(static_cast<TokenId>(id))) {
      decoded_[id] = token_to_bytes(entry->token).value_or(entry->token);
    }
  }
}

void ByteLevelTokenizer::encode_text(std::string_view text,
                                     std::vector<TokenId>& out) const {
  auto session = sessions_.lend(model_);
  if (raw_tokens_.empty()) {
    encode_normalized(*session, text, out);
    return;
  }
  raw_tokens_.encode_around(classes_, text, out, [&](std::string_view piece, size_t) {
    encode_normalized(*session, piece, out);
  });
}

void ByteLevelTokenizer::encode_normalized(BpeSession& session, std::string_view text,
                                           std::vector<TokenId>& out) const {
  std::string composed;
  if (nfc_) {
    composed = unicode_data().normalize(text, NormalForm::C);
    text = composed;
  }
  if (normalized_tokens_.empty()) {
    encode_plain(session, text, 0, out);
    return;
  }
  normalized_tokens_.encode_around(
      classes_, text, out,
      [&](std::string_view piece, size_t) { encode_plain(session, piece, 0, out); });
}

void ByteLevelTokenizer::encode_plain(BpeSession& session, std::string_view text,
                                      size_t step, std::vector<TokenId>& out) const {
  if (text.empty()) return;
  if (step == steps_.size()) {
    session.encode_piece(text, out);
    return;
  }
  std::string prefixed;
  if (steps_[step].add_prefix_space && text.front() != ' ') {
    prefixed.append(" ").append(text);
    text = prefixed;
  }
  const SplitPattern pattern = steps_[step].pattern;
  if (step + 1 == steps_.size()) {
    session.encode_text(pattern, text, out);
    return;
  }
  for (size_t pos = 0; pos < text.size();) {
    const size_t end = next_piece_end(pattern, classes_, text, pos);
    encode_plain(session, text.substr(pos, end - pos), step + 1, out);
    pos = end;
  }
}

std::string ByteLevelTokenizer::decode(const std::vector<TokenId>& ids,
                                       bool skip_special_tokens) const {
  std::string joined;
  bool first = true;
  for (const TokenId id : ids) {
    // As in Hugging Face, an id without a token is left out.
    const TokenTable::Entry* entry = table().find(id);
    if (!entry || (skip_special_tokens && entry->special)) continue;
    if (!byte_level_decoder_) {
      if (!first) joined.push_back(' ');
      first = false;
    }
    joined.append(byte_level_decoder_ ? decoded_[id] : entry->token);
  }
  return byte_level_decoder_ ? utf8_lossy(joined) : joined;
}

std::string ByteLevelTokenizer::token_bytes(TokenId id) const {
  const TokenTable::Entry& entry = table().at(id);
  return entry.added ? entry.token : decoded_[id];
}

}  // namespace longhaul::tokenizer
