#include "longhaul/tokenizer/file/sentencepiece_tokenizer.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>

#include "longhaul/base/error.h"
#include "longhaul/base/hash.h"
#include "longhaul/base/text.h"
#include "longhaul/tokenizer/unicode/unicode.h"

namespace longhaul::tokenizer {
namespace {

using PieceType = SentencePieceFile::PieceType;

constexpr std::string_view kMark = "\xE2\x96\x81";  // U+2581

std::optional<uint32_t> unknown_of(const SentencePieceFile& file) {
  for (size_t id = 0; id < file.pieces.size(); ++id) {
    if (file.pieces[id].type == PieceType::Unknown) return static_cast<uint32_t>(id);
  }
  throw InputError("tokenizer", "the SentencePiece model has no unknown piece");
}

std::unique_ptr<PieceModel> make_unigram(const SentencePieceFile& file) {
  UnigramSpec spec;
  for (const auto& piece : file.pieces) {
    const bool user_defined = piece.type == PieceType::UserDefined;
    spec.entries.push_back({piece.text, piece.score,
                            piece.type == PieceType::Normal || user_defined,
                            user_defined});
  }
  spec.unknown = unknown_of(file);
  spec.byte_fallback = file.byte_fallback;
  spec.single_precision = true;
  return std::make_unique<UnigramModel>(spec);
}

bool one_point(std::string_view text) {
  return decode_at(text.data(), 0).bytes == text.size();
}

/// Makes the model. SentencePiece merges neighbours whose joined text is a piece, the
/// best score first. So every way to cut a piece in two is a merge, and equal scores have
/// equal ranks.
class BpeBuilder {
 public:
  explicit BpeBuilder(const SentencePieceFile& file) : file_(file) {
    spec_.token_count = static_cast<uint32_t>(file.pieces.size());
    spec_.unknown = unknown_of(file);
    spec_.fuse_unknown = true;
    spec_.byte_fallback = file.byte_fallback;
    for (size_t id = 0; id < file.pieces.size(); ++id) add_piece(id);
    rank_scores();
    for (size_t id = 0; id < file.pieces.size(); ++id) add_merges(id);
  }
  std::unique_ptr<PieceModel> build() const {
    return std::make_unique<CharBpeModel>(spec_);
  }

 private:
  void add_piece(size_t id) {
    const auto& piece = file_.pieces[id];
    if (piece.type == PieceType::Unused) {
      fail_input(
          "tokenizer",
          "the piece \"{}\" is marked as unused, which is not supported in BPE models",
          piece.text);
    }
    const bool normal = piece.type == PieceType::Normal;
    // A piece of one character that is not of type Normal does not stand for this
    // character in a text.
    const bool hidden = !normal && one_point(piece.text);
    spec_.vocab.push_back(hidden ? std::nullopt : std::optional(piece.text));
    if (!normal) return;
    ids_.insert_or_assign(piece.text, static_cast<uint32_t>(id));
    scores_.push_back(piece.score);
  }
  void rank_scores() {
    std::sort(scores_.begin(), scores_.end(), std::greater<>());
    scores_.erase(std::unique(scores_.begin(), scores_.end()), scores_.end());
  }
  void add_merges(size_t id) {
    const auto& piece = file_.pieces[id];
    if (piece.type != PieceType::Normal) return;
    const std::string_view text = piece.text;
    const auto rank = static_cast<uint32_t>(
        std::lower_bound(scores_.begin(), scores_.end(), piece.score, std::greater<>()) -
        scores_.begin());
    for (size_t cut = decode_at(text.data(), 0).bytes; cut < text.size();
         cut += decode_at(text.data(), cut).bytes) {
      const auto left = symbol(text.substr(0, cut));
      const auto right = symbol(text.substr(cut));
      if (!left || !right) continue;
      spec_.merges.push_back({{*left, *right, static_cast<uint32_t>(id)}, rank});
    }
  }
  /// Returns the id of a piece, or of a single character that is no piece but a part of
  /// some merge.
  std::optional<uint32_t> symbol(std::string_view text) {
    const auto found = ids_.find(text);
    if (found != ids_.end()) return found->second;
    if (!one_point(text)) return std::nullopt;
    const auto id = static_cast<uint32_t>(spec_.vocab.size());
    spec_.vocab.emplace_back(text);
    ids_.emplace(text, id);
    return id;
  }

  const SentencePieceFile& file_;
  CharBpeSpec spec_;
  std::map<std::string, uint32_t, std::less<>> ids_;
  std::vector<float> scores_;
};

std::unique_ptr<PieceModel> make_model(const SentencePieceFile& file) {
  switch (file.model_type) {
    case SentencePieceFile::ModelType::Unigram:
      return make_unigram(file);
    case SentencePieceFile::ModelType::Bpe:
      return BpeBuilder(file).build();
    case SentencePieceFile::ModelType::Word:
      fail_input(
          "tokenizer",
          "SentencePiece models of the type WORD are not supported; BPE and UNIGRAM are");
    case SentencePieceFile::ModelType::Char:
      break;
  }
  fail_input(
      "tokenizer",
      "SentencePiece models of the type CHAR are not supported; BPE and UNIGRAM are");
}

Vocabulary vocabulary_of(const SentencePieceFile& file) {
  Vocabulary vocabulary;
  for (const auto& piece : file.pieces) vocabulary.emplace_back(piece.text);
  return vocabulary;
}

/// Moves bytes to the end of a text, with U+FFFD in place of each byte that is no part of
/// a character.
void append_byte_run(std::string& bytes, std::string& text) {
  while (!bytes.empty()) {
    size_t good = 0;
    const auto bad = find_invalid_utf8(bytes);
    good = bad.value_or(bytes.size());
    text.append(bytes, 0, good);
    bytes.erase(0, good);
    if (!bytes.empty()) {
      text.append("\xEF\xBF\xBD");
      bytes.erase(0, 1);
    }
  }
}

void replace_marks(std::string& text) {
  for (size_t pos = text.find(kMark); pos != std::string::npos;
       pos = text.find(kMark, pos + 1)) {
    text.replace(pos, kMark.size(), " ");
  }
}

}  // namespace

std::unique_ptr<SentencePieceTokenizer> SentencePieceTokenizer::parse(
    std::string_view bytes, std::string_view name) {
  return std::make_unique<SentencePieceTokenizer>(
      parse_sentencepiece(bytes, name),
      hash_hex("longhaul sentencepiece 1\n" + std::string(bytes)));
}

SentencePieceTokenizer::SentencePieceTokenizer(SentencePieceFile file,
                                               std::string fingerprint)
    : FileTokenizer(TokenTable(vocabulary_of(file), {}, TokenTable::Equals::First), {},
                    std::move(fingerprint)),
      file_(std::move(file)),
      map_(file_.charsmap.empty() ? CharMap() : CharMap(file_.charsmap)),
      model_(make_model(file_)) {
  for (size_t id = 0; id < file_.pieces.size(); ++id) {
    const auto& piece = file_.pieces[id];
    if (piece.type == PieceType::UserDefined) {
      user_defined_.insert(piece.text, static_cast<TokenId>(id));
    }
  }
}

std::optional<TokenId> SentencePieceTokenizer::control(const std::string& piece) const {
  const auto id = token_to_id(piece);
  if (!id || file_.pieces[*id].type != PieceType::Control) return std::nullopt;
  return id;
}

void SentencePieceTokenizer::surround_with(bool bos, bool eos) {
  const auto required = [](std::optional<TokenId> id, const std::string& piece) {
    if (id) return *id;
    fail_input("tokenizer",
               "tokenizer_config.json asks for \"{}\" around a text, but tokenizer.model "
               "has no such piece",
               piece);
  };
  Affixes affixes;
  if (bos) affixes.prefix = {required(own_bos(), file_.bos_piece)};
  if (eos) affixes.suffix = {required(own_eos(), file_.eos_piece)};
  set_affixes(std::move(affixes),
              hash_hex(fmt::format("{} {} {}", fingerprint(), bos, eos)));
}

SentencePieceTokenizer::Step SentencePieceTokenizer::normalize_step(std::string_view text,
                                                                    size_t pos) const {
  const size_t own = user_defined_.longest(text, pos).end - pos;
  if (own > 0) return {text.substr(pos, own), own};
  if (const auto found = map_.longest_prefix(text.substr(pos))) {
    const size_t end = pos + found->bytes;
    if (end < text.size() && (static_cast<uint8_t>(text[end]) & 0xC0) == 0x80) {
      throw InputError("tokenizer", "a character map cuts a character in two");
    }
    return {found->text, found->bytes};
  }
  const size_t bytes = decode_at(text.data(), pos).bytes;
  return {text.substr(pos, bytes), bytes};
}

std::string SentencePieceTokenizer::normalize(std::string_view text) const {
  const std::string_view space = file_.escape_whitespaces ? kMark : " ";
  const bool trims = file_.remove_extra_whitespaces;
  size_t pos = 0;
  while (trims && pos < text.size()) {
    const Step step = normalize_step(text, pos);
    if (step.text != " ") break;
    pos += step.bytes;
  }
  std::string out;
  if (pos == text.size()) return out;
  out.reserve(text.size() + text.size() / 4);
  if (file_.add_dummy_prefix && !file_.whitespace_as_suffix) out.append(space);
  bool after_space = trims;
  while (pos < text.size()) {
    Step step = normalize_step(text, pos);
    pos += step.bytes;
    while (after_space && step.text.starts_with(' ')) step.text.remove_prefix(1);
    if (step.text.empty()) continue;
    for (const char c : step.text) {
      if (c == ' ') {
        out.append(space);
      } else {
        out.push_back(c);
      }
    }
    after_space = trims && step.text.ends_with(' ');
  }
  while (trims && out.ends_with(space)) out.resize(out.size() - space.size());
  if (file_.add_dummy_prefix && file_.whitespace_as_suffix) out.append(space);
  return out;
}

void SentencePieceTokenizer::encode_text(std::string_view text,
                                         std::vector<TokenId>& out) const {
  const std::string normal = normalize(text);
  const std::string_view view = normal;
  auto session = sessions_.lend(*model_);
  const bool cuts =
      !user_defined_.empty() && file_.model_type == SentencePieceFile::ModelType::Bpe;
  size_t done = 0;
  for (size_t pos = 0; cuts && pos < view.size();) {
    const ByteTrie::Found found = user_defined_.longest(view, pos);
    if (found.value == ByteTrie::kNone) {
      pos += decode_at(view.data(), pos).bytes;
      continue;
    }
    if (done < pos) session->encode(view.substr(done, pos - done), out);
    out.push_back(found.value);
    pos = done = found.end;
  }
  if (done < view.size()) session->encode(view.substr(done), out);
}

std::string SentencePieceTokenizer::surface(TokenId id, bool at_start,
                                            bool& space_dropped) const {
  const auto& piece = file_.pieces[id];
  space_dropped = false;
  if (piece.type == PieceType::Control) return {};
  if (piece.type == PieceType::Unknown) return file_.unknown_surface;
  std::string text = piece.text;
  const bool drops = file_.add_dummy_prefix || file_.remove_extra_whitespaces;
  if (at_start && drops && text.starts_with(kMark)) {
    text.erase(0, kMark.size());
    // If spaces are trimmed, all leading spaces are dropped, not only the first.
    space_dropped = !file_.remove_extra_whitespaces;
  }
  replace_marks(text);
  return text;
}

std::string SentencePieceTokenizer::decode(const std::vector<TokenId>& ids,
                                           bool /*skip_special_tokens*/) const {
  std::string text;
  std::string bytes;
  bool at_start = true;
  bool space_dropped = false;
  for (const TokenId id : ids) {
    if (id >= file_.pieces.size()) continue;
    const auto& piece = file_.pieces[id];
    if (piece.type == PieceType::Byte) {
      bytes += token_bytes(id);
      continue;
    }
    append_byte_run(bytes, text);
    if (space_dropped || !text.empty()) at_start = false;
    text += surface(id, at_start, space_dropped);
  }
  append_byte_run(bytes, text);
  return text;
}

std::string SentencePieceTokenizer::token_bytes(TokenId id) const {
  const TokenTable::Entry& entry = table().at(id);
  if (file_.pieces[id].type == PieceType::Byte) {
    const auto byte = byte_of_token(entry.token);
    return byte ? std::string(1, static_cast<char>(*byte)) : std::string();
  }
  bool space_dropped = false;
  return surface(id, false, space_dropped);
}

}  // namespace longhaul::tokenizer
