#include "longhaul/data/tokenizer/byte_level_tokenizer.h"

#include <fmt/format.h>

#include "longhaul/base/error.h"
#include "longhaul/base/text.h"
#include "longhaul/data/tokenizer/byte_alphabet.h"

namespace longhaul::data {
namespace {

AddedTokenFinder make_finder(const TokenizerSpec& spec, bool normalized) {
  std::vector<AddedToken> tokens;
  std::vector<std::string> patterns;
  for (const AddedToken& token : spec.added) {
    if (token.normalized != normalized) continue;
    tokens.push_back(token);
    patterns.push_back(normalized && spec.nfc ? to_nfc(token.content) : token.content);
  }
  return {std::move(tokens), patterns};
}

}  // namespace

ByteLevelTokenizer::ByteLevelTokenizer(TokenizerSpec spec)
    : classes_(char_classes()),
      model_(spec.model),
      raw_tokens_(make_finder(spec, false)),
      normalized_tokens_(make_finder(spec, true)),
      nfc_(spec.nfc),
      steps_(spec.steps),
      prefix_(spec.prefix),
      suffix_(spec.suffix),
      byte_level_decoder_(spec.byte_level_decoder),
      fingerprint_(fingerprint_of(spec)) {
  build_entries(spec);
}

void ByteLevelTokenizer::build_entries(const TokenizerSpec& spec) {
  entries_.resize(spec.model.vocab.size());
  for (size_t id = 0; id < entries_.size(); ++id) {
    if (spec.model.vocab[id])
      entries_[id] = {true, false, false, *spec.model.vocab[id], {}};
  }
  for (const AddedToken& token : spec.added) {
    if (token.id >= entries_.size()) entries_.resize(size_t{token.id} + 1);
    entries_[token.id] = {true, true, token.special, token.content, {}};
  }
  for (size_t id = 0; id < entries_.size(); ++id) {
    Entry& entry = entries_[id];
    if (!entry.known) continue;
    // Hugging Face maps added tokens through the alphabet as well.
    entry.decoded = token_to_bytes(entry.token).value_or(entry.token);
    ids_.emplace(entry.token, static_cast<TokenId>(id));
  }
}

void ByteLevelTokenizer::encode(std::string_view text, bool add_special_tokens,
                                std::vector<TokenId>& out) const {
  if (const auto bad = find_invalid_utf8(text)) {
    throw InputError("tokenizer", fmt::format("the text is not UTF-8 at byte {}", *bad));
  }
  if (add_special_tokens) out.insert(out.end(), prefix_.begin(), prefix_.end());
  BpeModel::Session session(model_);
  if (raw_tokens_.empty()) {
    encode_normalized(session, text, out);
  } else {
    std::vector<AddedTokenFinder::Part> parts;
    raw_tokens_.split(classes_, text, parts);
    for (const auto& part : parts) {
      if (part.id >= 0) {
        out.push_back(static_cast<TokenId>(part.id));
      } else {
        encode_normalized(session, text.substr(part.start, part.end - part.start), out);
      }
    }
  }
  if (add_special_tokens) out.insert(out.end(), suffix_.begin(), suffix_.end());
}

void ByteLevelTokenizer::encode_normalized(BpeModel::Session& session,
                                           std::string_view text,
                                           std::vector<TokenId>& out) const {
  std::string composed;
  if (nfc_) {
    composed = to_nfc(text);
    text = composed;
  }
  if (normalized_tokens_.empty()) {
    encode_plain(session, text, 0, out);
    return;
  }
  std::vector<AddedTokenFinder::Part> parts;
  normalized_tokens_.split(classes_, text, parts);
  for (const auto& part : parts) {
    if (part.id >= 0) {
      out.push_back(static_cast<TokenId>(part.id));
    } else {
      encode_plain(session, text.substr(part.start, part.end - part.start), 0, out);
    }
  }
}

void ByteLevelTokenizer::encode_plain(BpeModel::Session& session, std::string_view text,
                                      size_t step, std::vector<TokenId>& out) const {
  if (text.empty()) return;
  if (step == steps_.size()) {
    session.encode(text, out);
    return;
  }
  std::string prefixed;
  if (steps_[step].add_prefix_space && text.front() != ' ') {
    prefixed.append(" ").append(text);
    text = prefixed;
  }
  const SplitPattern pattern = steps_[step].pattern;
  const bool last = step + 1 == steps_.size();
  for (size_t pos = 0; pos < text.size();) {
    const size_t end = next_piece_end(pattern, classes_, text, pos);
    const std::string_view piece = text.substr(pos, end - pos);
    if (last) {
      session.encode(piece, out);
    } else {
      encode_plain(session, piece, step + 1, out);
    }
    pos = end;
  }
}

std::string ByteLevelTokenizer::decode(const std::vector<TokenId>& ids,
                                       bool skip_special_tokens) const {
  std::string joined;
  bool first = true;
  for (const TokenId id : ids) {
    // As in Hugging Face, an id without a token is left out.
    if (id >= entries_.size() || !entries_[id].known) continue;
    const Entry& entry = entries_[id];
    if (skip_special_tokens && entry.special) continue;
    if (!byte_level_decoder_) {
      if (!first) joined.push_back(' ');
      first = false;
    }
    joined.append(byte_level_decoder_ ? entry.decoded : entry.token);
  }
  return byte_level_decoder_ ? utf8_lossy(joined) : joined;
}

std::string ByteLevelTokenizer::token_bytes(TokenId id) const {
  if (id >= entries_.size() || !entries_[id].known) {
    throw InputError("tokenizer", fmt::format("no token has the id {}; ids are below {}",
                                              id, entries_.size()));
  }
  return entries_[id].added ? entries_[id].token : entries_[id].decoded;
}

std::optional<TokenId> ByteLevelTokenizer::token_to_id(std::string_view token) const {
  const auto found = ids_.find(token);
  if (found == ids_.end()) return std::nullopt;
  return found->second;
}

std::optional<std::string> ByteLevelTokenizer::id_to_token(TokenId id) const {
  if (id >= entries_.size() || !entries_[id].known) return std::nullopt;
  return entries_[id].token;
}

}  // namespace longhaul::data
