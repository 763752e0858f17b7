#include "longhaul/tokenizer/file/pipeline_tokenizer.h"

#include <algorithm>

#include "longhaul/base/error.h"
#include "longhaul/tokenizer/unicode/byte_alphabet.h"

namespace longhaul::tokenizer {
namespace {

/// Limits the growth of a text. No published part makes a text much longer, but a chain
/// of hostile parts could fill memory.
void check_growth(size_t before, size_t now) {
  constexpr size_t kFactor = 256;
  constexpr size_t kFloor = size_t{1} << 20;
  if (now <= kFloor || now / kFactor <= before) return;
  fail_input("tokenizer",
             "the parts of the tokenizer make {} bytes from a text of {} bytes; the file "
             "is damaged",
             now, before);
}

}  // namespace

PipelineTokenizer::PipelineTokenizer(Pipeline pipeline)
    : FileTokenizer(
          TokenTable(std::move(pipeline.vocab), pipeline.added, TokenTable::Equals::Last),
          std::move(pipeline.affixes), std::move(pipeline.fingerprint)),
      classes_(char_classes()),
      pipeline_(std::move(pipeline)),
      raw_tokens_(make_finder(false)),
      normalized_tokens_(make_finder(true)) {}

AddedTokenFinder PipelineTokenizer::make_finder(bool normalized) const {
  return {pipeline_.added, normalized, [&](std::string text) {
            NormalText normal{std::move(text)};
            normalize(normal);
            return normal.text;
          }};
}

void PipelineTokenizer::encode_text(std::string_view text,
                                    std::vector<TokenId>& out) const {
  auto session = sessions_.lend(*pipeline_.model);
  raw_tokens_.encode_around(classes_, text, out, [&](std::string_view piece, size_t at) {
    encode_raw(*session, piece, at == 0, out);
  });
}

void PipelineTokenizer::encode_raw(PieceSession& session, std::string_view text,
                                   bool first, std::vector<TokenId>& out) const {
  if (text.empty()) return;
  NormalText normal{std::string(text), first ? decode_at(text.data(), 0).bytes : 0};
  normalize(normal);
  if (normalized_tokens_.empty()) {
    encode_plain(session, normal.text, normal.at_start, out);
    return;
  }
  normalized_tokens_.encode_around(
      classes_, normal.text, out, [&](std::string_view piece, size_t at) {
        encode_plain(session, piece, normal.at_start - std::min(at, normal.at_start),
                     out);
      });
}

void PipelineTokenizer::encode_plain(PieceSession& session, std::string_view text,
                                     size_t at_start, std::vector<TokenId>& out) const {
  if (text.empty()) return;
  if (pipeline_.pre_tokenizers.empty()) {
    session.encode(text, out);
    return;
  }
  Pieces pieces{std::string(text), {{0, text.size(), std::min(at_start, text.size())}}};
  for (const auto& step : pipeline_.pre_tokenizers) {
    step(pieces);
    check_growth(text.size(), pieces.text.size());
  }
  for (const Pieces::Piece& piece : pieces.pieces) {
    session.encode(pieces.view(piece), out);
  }
}

void PipelineTokenizer::normalize(NormalText& normal) const {
  const size_t before = normal.text.size();
  for (const auto& normalizer : pipeline_.normalizers) {
    normalizer(normal);
    check_growth(before, normal.text.size());
  }
}

std::string PipelineTokenizer::join(std::vector<std::string> tokens) const {
  const auto size = [&] {
    size_t total = 0;
    for (const std::string& token : tokens) total += token.size();
    return total;
  };
  const size_t before = size();
  for (const auto& decoder : pipeline_.decoders) {
    decoder(tokens);
    check_growth(before, size());
  }
  std::string text;
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (i > 0 && !pipeline_.has_decoder) text.push_back(' ');
    text += tokens[i];
  }
  return text;
}

std::string PipelineTokenizer::decode(const std::vector<TokenId>& ids,
                                      bool skip_special_tokens) const {
  std::vector<std::string> tokens;
  tokens.reserve(ids.size());
  for (const TokenId id : ids) {
    // As in Hugging Face, an id without a token is left out.
    const TokenTable::Entry* entry = table().find(id);
    if (!entry || (skip_special_tokens && entry->special)) continue;
    tokens.push_back(entry->token);
  }
  return join(std::move(tokens));
}

std::string PipelineTokenizer::token_bytes(TokenId id) const {
  const TokenTable::Entry& entry = table().at(id);
  if (entry.added) return entry.token;
  // If the decoder knows tokens of bytes ("<0x0A>"), such a token gives its byte, since a
  // byte alone may be no character. Any other token is decoded behind another token,
  // since the first token of a text may be decoded in another way.
  if (const auto byte = byte_of_token(entry.token)) {
    if (join({entry.token}) != entry.token)
      return std::string(1, static_cast<char>(*byte));
  }
  const auto bytes = token_to_bytes(entry.token);
  if (bytes && join({entry.token}) == utf8_lossy(*bytes)) return *bytes;
  const std::string before = "a";
  const std::string both = join({before, entry.token});
  return both.starts_with(before) ? both.substr(before.size()) : both;
}

}  // namespace longhaul::tokenizer
