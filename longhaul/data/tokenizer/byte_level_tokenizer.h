#pragma once

#include <map>
#include <string>
#include <vector>

#include "longhaul/data/tokenizer/tokenizer.h"
#include "longhaul/data/tokenizer/tokenizer_json.h"

namespace longhaul::data {

/// BPE over bytes with known split patterns: the fast path of GPT-2, Llama-3 and Qwen-2.
class ByteLevelTokenizer final : public SurroundedTokenizer {
 public:
  explicit ByteLevelTokenizer(TokenizerSpec spec);

  using Tokenizer::encode;
  void encode(std::string_view text, bool add_special_tokens,
              std::vector<TokenId>& out) const override;
  std::string decode(const std::vector<TokenId>& ids,
                     bool skip_special_tokens) const override;
  std::string token_bytes(TokenId id) const override;
  int64_t vocab_size() const override { return static_cast<int64_t>(entries_.size()); }
  std::optional<TokenId> token_to_id(std::string_view token) const override;
  std::optional<std::string> id_to_token(TokenId id) const override;
  std::vector<TokenId> special_prefix() const override { return prefix_; }
  std::vector<TokenId> special_suffix() const override { return suffix_; }
  const std::string& fingerprint() const override { return fingerprint_; }

 private:
  struct Entry {
    bool known = false;
    bool added = false;
    bool special = false;
    std::string token;    // as written
    std::string decoded;  // what decode joins
  };
  void build_entries(const TokenizerSpec& spec);
  /// Text between added tokens: split, then BPE.
  void encode_plain(BpeModel::Session& session, std::string_view text, size_t step,
                    std::vector<TokenId>& out) const;
  void encode_normalized(BpeModel::Session& session, std::string_view text,
                         std::vector<TokenId>& out) const;

  const CharClasses& classes_;
  BpeModel model_;
  AddedTokenFinder raw_tokens_;
  AddedTokenFinder normalized_tokens_;
  bool nfc_;
  std::vector<SplitStep> steps_;
  std::vector<TokenId> prefix_;
  std::vector<TokenId> suffix_;
  bool byte_level_decoder_;
  std::vector<Entry> entries_;
  std::map<std::string, TokenId, std::less<>> ids_;
  std::string fingerprint_;
};

/// A hash of all that decides ids: equal for a file whose merges are strings and one
/// whose merges are pairs.
std::string fingerprint_of(const TokenizerSpec& spec);

}  // namespace longhaul::data
