#pragma once

#include <map>
#include <string>
#include <vector>

#include "longhaul/data/tokenizer/added_tokens.h"
#include "longhaul/data/tokenizer/decoders.h"
#include "longhaul/data/tokenizer/normalizers.h"
#include "longhaul/data/tokenizer/piece_model.h"
#include "longhaul/data/tokenizer/pre_tokenizers.h"
#include "longhaul/data/tokenizer/surrounded_tokenizer.h"
#include "longhaul/data/tokenizer/vocabulary.h"

namespace longhaul::data {

/// The parts of a tokenizer.json in the order in which a text passes through them.
struct Pipeline {
  Vocabulary vocab;
  std::vector<AddedToken> added;
  Normalizers normalizers;
  PreTokenizers pre_tokenizers;
  std::unique_ptr<PieceModel> model;
  std::vector<uint32_t> prefix;
  std::vector<uint32_t> suffix;
  TokenDecoders decoders;
  bool has_decoder = false;  ///< false: tokens joined by spaces
  std::string fingerprint;
};

/// Any tokenizer made of the known parts, whatever its model.
class PipelineTokenizer final : public SurroundedTokenizer {
 public:
  explicit PipelineTokenizer(Pipeline pipeline);

  using Tokenizer::encode;
  void encode(std::string_view text, bool add_special_tokens,
              std::vector<TokenId>& out) const override;
  std::string decode(const std::vector<TokenId>& ids,
                     bool skip_special_tokens) const override;
  std::string token_bytes(TokenId id) const override;
  int64_t vocab_size() const override { return static_cast<int64_t>(entries_.size()); }
  std::optional<TokenId> token_to_id(std::string_view token) const override;
  std::optional<std::string> id_to_token(TokenId id) const override;
  std::vector<TokenId> special_prefix() const override { return pipeline_.prefix; }
  std::vector<TokenId> special_suffix() const override { return pipeline_.suffix; }
  const std::string& fingerprint() const override { return pipeline_.fingerprint; }

 private:
  struct Entry {
    bool known = false;
    bool added = false;
    bool special = false;
    std::string token;
  };
  AddedTokenFinder make_finder(bool normalized) const;
  void build_entries();
  /// Text between the added tokens that are sought before normalizing.
  void encode_raw(PieceModel::Session& session, std::string_view text, bool first,
                  std::vector<TokenId>& out) const;
  void encode_plain(PieceModel::Session& session, std::string_view text, bool first,
                    std::vector<TokenId>& out) const;
  void normalize(std::string& text) const;
  std::string join(std::vector<std::string> tokens) const;

  const CharClasses& classes_;
  Pipeline pipeline_;
  AddedTokenFinder raw_tokens_;
  AddedTokenFinder normalized_tokens_;
  std::vector<Entry> entries_;
  std::map<std::string, TokenId, std::less<>> ids_;
};

}  // namespace longhaul::data
