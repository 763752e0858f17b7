#include "longhaul/tokenizer/pieces/piece_model.h"

#include <algorithm>

#include "longhaul/base/error.h"
#include "longhaul/tokenizer/unicode/unicode.h"

namespace longhaul::tokenizer {
namespace {

constexpr std::string_view kSpaceMark = "\xE2\x96\x81";  // U+2581

/// Returns whether a space mark (U+2581) stands behind another character of a token.
bool has_inner_mark(std::string_view token) {
  bool plain = false;
  for (size_t pos = 0; pos < token.size();) {
    const bool mark = token.substr(pos).starts_with(kSpaceMark);
    if (mark && plain) return true;
    plain = plain || !mark;
    pos += decode_at(token.data(), pos).bytes;
  }
  return false;
}

}  // namespace

CharBpeModel::CharBpeModel(const CharBpeSpec& spec)
    : bytes_(find_byte_tokens(spec.vocab)),
      unknown_(spec.unknown),
      fuse_unknown_(spec.fuse_unknown),
      byte_fallback_(spec.byte_fallback),
      token_count_(spec.token_count) {
  for (const auto& ranked : spec.merges) rules_.add(ranked.merge, ranked.rank);
  for (size_t id = 0; id < spec.vocab.size(); ++id) {
    if (id >= token_count_) leftovers_.push_back(spec.vocab[id].value_or(""));
    if (!spec.vocab[id] || spec.vocab[id]->empty()) continue;
    const std::string& token = *spec.vocab[id];
    const CodePoint first = decode_at(token.data(), 0);
    if (first.bytes == token.size()) chars_[first.value] = static_cast<uint32_t>(id);
    if (spec.ignore_merges) wholes_.emplace(token, static_cast<uint32_t>(id));
  }
  find_word_starts(spec);
}

/// Finds out whether words can be merged separately, which is much faster than a long
/// text at once. The ids are the same if no merge joins a space mark to the text before
/// it.
void CharBpeModel::find_word_starts(const CharBpeSpec& spec) {
  const bool mark_known = char_id(0x2581).has_value();
  const bool crossed =
      std::any_of(spec.merges.begin(), spec.merges.end(), [&](const auto& ranked) {
        return has_inner_mark(spec.vocab[ranked.merge.left].value_or("") +
                              spec.vocab[ranked.merge.right].value_or(""));
      });
  // With ignore_merges a whole piece that is in the vocabulary is one token, so a piece
  // of several words must not be merged word by word.
  words_apart_ = mark_known && !crossed && !spec.ignore_merges;
}

std::optional<uint32_t> CharBpeModel::char_id(uint32_t code_point) const {
  const uint32_t* found = chars_.find(code_point);
  if (!found) return std::nullopt;
  return *found;
}

void CharBpeModel::add_symbols(std::string_view word, std::vector<uint32_t>& out) const {
  // As in Hugging Face, the token of an unknown character is held back until a known or
  // another unknown character follows, or the word ends. The bytes of a character with
  // byte fallback do not count as known characters, so they can come before it.
  bool waiting = false;
  for (size_t pos = 0; pos < word.size();) {
    const CodePoint point = decode_at(word.data(), pos);
    const std::string_view text = word.substr(pos, point.bytes);
    pos += point.bytes;
    if (const uint32_t* id = chars_.find(point.value)) {
      if (waiting) out.push_back(*unknown_);
      waiting = false;
      out.push_back(*id);
      continue;
    }
    if (byte_fallback_ && append_bytes(bytes_, text, out)) continue;
    if (!unknown_) {
      fail_input("tokenizer",
                 "the vocabulary has no token for the character U+{:04X} and no unknown "
                 "token; use a tokenizer that has the character",
                 point.value);
    }
    if (waiting && !fuse_unknown_) out.push_back(*unknown_);
    waiting = true;
  }
  if (waiting) out.push_back(*unknown_);
}

/// Replaces each character that is no token by itself, and that no merge has joined to
/// another one, by the tokens of its bytes or by the unknown token.
void CharBpeModel::resolve_leftovers(std::vector<uint32_t>& out, size_t start) const {
  std::vector<uint32_t> resolved;
  for (size_t i = start; i < out.size(); ++i) {
    if (out[i] < token_count_) {
      const bool fused = fuse_unknown_ && unknown_ && out[i] == *unknown_ &&
                         !resolved.empty() && resolved.back() == *unknown_;
      if (!fused) resolved.push_back(out[i]);
      continue;
    }
    const std::string& text = leftovers_[out[i] - token_count_];
    if (byte_fallback_ && append_bytes(bytes_, text, resolved)) continue;
    LH_CHECK(unknown_, "tokenizer", "no unknown token for \"{}\"", text);
    if (fuse_unknown_ && !resolved.empty() && resolved.back() == *unknown_) continue;
    resolved.push_back(*unknown_);
  }
  out.resize(start);
  out.insert(out.end(), resolved.begin(), resolved.end());
}

void CharBpeModel::encode_word(std::string_view word, std::vector<uint32_t>& out) const {
  if (!wholes_.empty()) {
    const auto found = wholes_.find(std::string(word));
    if (found != wholes_.end()) {
      out.push_back(found->second);
      return;
    }
  }
  const size_t start = out.size();
  add_symbols(word, out);
  rules_.merge(out, start);
  if (!leftovers_.empty()) resolve_leftovers(out, start);
}

/// Returns the end of the first word: space marks, then all up to the next mark.
size_t CharBpeModel::word_end(std::string_view piece) const {
  if (!words_apart_) return piece.size();
  size_t pos = 0;
  while (piece.substr(pos).starts_with(kSpaceMark)) pos += kSpaceMark.size();
  return std::min(piece.find(kSpaceMark, pos), piece.size());
}

}  // namespace longhaul::tokenizer
