#pragma once

#include <string>
#include <vector>

#include "longhaul/tokenizer/file/tokenizer_json.h"
#include "longhaul/tokenizer/pieces/bpe_session.h"
#include "longhaul/tokenizer/tables/session_pool.h"

namespace longhaul::tokenizer {

/// A BPE tokenizer over bytes with known split patterns: the fast path of GPT-2, Llama-3
/// and Qwen-2.
class ByteLevelTokenizer final : public FileTokenizer {
 public:
  explicit ByteLevelTokenizer(TokenizerSpec spec);

  std::string decode(const std::vector<TokenId>& ids,
                     bool skip_special_tokens) const override;
  std::string token_bytes(TokenId id) const override;

 private:
  void encode_text(std::string_view text, std::vector<TokenId>& out) const override;
  /// Encodes text between added tokens: splits the text, then applies BPE.
  void encode_plain(BpeSession& session, std::string_view text, size_t step,
                    std::vector<TokenId>& out) const;
  void encode_normalized(BpeSession& session, std::string_view text,
                         std::vector<TokenId>& out) const;

  const CharClasses& classes_;
  BpeModel model_;
  AddedTokenFinder raw_tokens_;
  AddedTokenFinder normalized_tokens_;
  bool nfc_;
  std::vector<SplitStep> steps_;
  bool byte_level_decoder_;
  std::vector<std::string> decoded_;  // the text of each id that decode joins
  mutable SessionPool<BpeSession> sessions_;
};

/// Returns a hash of everything that decides ids. The hash is the same whether a file
/// writes merges as strings or as pairs.
std::string fingerprint_of(const TokenizerSpec& spec);

}  // namespace longhaul::tokenizer
