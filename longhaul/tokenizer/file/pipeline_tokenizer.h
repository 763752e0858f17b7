#pragma once

#include <string>
#include <vector>

#include "longhaul/tokenizer/file/file_tokenizer.h"
#include "longhaul/tokenizer/pieces/decoders.h"
#include "longhaul/tokenizer/pieces/piece_model.h"
#include "longhaul/tokenizer/pieces/vocabulary.h"
#include "longhaul/tokenizer/split/added_tokens.h"
#include "longhaul/tokenizer/split/normalizers.h"
#include "longhaul/tokenizer/split/pre_tokenizers.h"
#include "longhaul/tokenizer/tables/session_pool.h"

namespace longhaul::tokenizer {

/// The parts of a tokenizer.json in the order in which a text passes through them.
struct Pipeline {
  Vocabulary vocab;
  std::vector<AddedToken> added;
  Normalizers normalizers;
  PreTokenizers pre_tokenizers;
  std::unique_ptr<PieceModel> model;
  Affixes affixes;
  TokenDecoders decoders;
  bool has_decoder = false;  ///< false: decoding joins tokens by spaces
  std::string fingerprint;
};

/// A tokenizer of any known parts, with any model.
class PipelineTokenizer final : public FileTokenizer {
 public:
  explicit PipelineTokenizer(Pipeline pipeline);

  std::string decode(const std::vector<TokenId>& ids,
                     bool skip_special_tokens) const override;
  std::string token_bytes(TokenId id) const override;

 private:
  void encode_text(std::string_view text, std::vector<TokenId>& out) const override;
  AddedTokenFinder make_finder(bool normalized) const;
  /// Encodes text between the added tokens that are found before normalizing.
  void encode_raw(PieceSession& session, std::string_view text, bool first,
                  std::vector<TokenId>& out) const;
  /// See NormalText for `at_start`.
  void encode_plain(PieceSession& session, std::string_view text, size_t at_start,
                    std::vector<TokenId>& out) const;
  void normalize(NormalText& normal) const;
  std::string join(std::vector<std::string> tokens) const;

  const CharClasses& classes_;
  Pipeline pipeline_;
  AddedTokenFinder raw_tokens_;
  AddedTokenFinder normalized_tokens_;
  mutable SessionPool<PieceSession> sessions_;
};

}  // namespace longhaul::tokenizer
