#pragma once

#include <algorithm>
#include <utility>

#include "longhaul/base/error.h"
#include "longhaul/tokenizer/tokenizer.h"

namespace longhaul::data {

/// A tokenizer for tests: one token for each byte, BOS 256, EOS 257. The text "<eos>" is
/// the EOS token. Ids from 258 have no token.
class ByteTokenizer final : public tokenizer::Tokenizer {
 public:
  ByteTokenizer(fs::path file, bool own_bos, bool own_eos, int64_t vocabulary = 258)
      : own_bos_(own_bos),
        own_eos_(own_eos),
        vocabulary_(vocabulary),
        files_({std::move(file)}) {}

  using tokenizer::Tokenizer::encode;
  void encode(std::string_view text, bool special,
              std::vector<tokenizer::TokenId>& out) const override {
    if (special && own_bos_) out.push_back(256);
    for (size_t i = 0; i < text.size(); ++i) {
      if (text.substr(i, 5) == "<eos>") {
        out.push_back(257);
        i += 4;
      } else {
        out.push_back(static_cast<unsigned char>(text[i]));
      }
    }
    if (special && own_eos_) out.push_back(257);
  }
  std::string decode(const std::vector<tokenizer::TokenId>& ids,
                     bool skip_special_tokens) const override {
    std::string text;
    for (const tokenizer::TokenId id : ids) {
      if (id < (skip_special_tokens ? 256 : 258)) text += token_bytes(id);
    }
    return text;
  }
  std::string token_bytes(tokenizer::TokenId id) const override {
    if (id == 256) return "<bos>";
    if (id == 257) return "<eos>";
    return std::string(1, static_cast<char>(id));
  }
  int64_t vocab_size() const override { return vocabulary_; }
  std::optional<tokenizer::TokenId> token_to_id(std::string_view token) const override {
    if (token == "<bos>") return 256;
    if (token == "<eos>") return 257;
    if (token.size() != 1) return {};
    return static_cast<unsigned char>(token[0]);
  }
  std::optional<std::string> id_to_token(tokenizer::TokenId id) const override {
    return id < 258 ? std::optional(token_bytes(id)) : std::nullopt;
  }
  std::vector<tokenizer::TokenId> special_prefix() const override {
    return own_bos_ ? std::vector<tokenizer::TokenId>{256}
                    : std::vector<tokenizer::TokenId>{};
  }
  std::vector<tokenizer::TokenId> special_suffix() const override {
    return own_eos_ ? std::vector<tokenizer::TokenId>{257}
                    : std::vector<tokenizer::TokenId>{};
  }
  std::optional<tokenizer::TokenId> bos_id() const override { return 256; }
  std::optional<tokenizer::TokenId> eos_id() const override { return 257; }
  const std::string& fingerprint() const override { return fingerprint_; }
  const std::vector<std::string>& warnings() const override { return warnings_; }
  const std::vector<fs::path>& files() const override { return files_; }

 private:
  bool own_bos_;
  bool own_eos_;
  int64_t vocabulary_;
  std::string fingerprint_ = "bytes";
  std::vector<std::string> warnings_;
  std::vector<fs::path> files_;
};

/// A tokenizer that gives the letter Q another id than its base tokenizer does, and that
/// cannot express "~".
class ChangedTokenizer final : public tokenizer::Tokenizer {
 public:
  explicit ChangedTokenizer(const tokenizer::Tokenizer& base) : base_(base) {}
  using tokenizer::Tokenizer::encode;
  void encode(std::string_view text, bool special,
              std::vector<tokenizer::TokenId>& out) const override {
    base_.encode(text, special, out);
    if (text.find('~') != text.npos) throw InputError("tokenizer", "no token for ~");
    for (tokenizer::TokenId& id : out) id = id == 'Q' ? 'q' : id;
  }
  std::string decode(const std::vector<tokenizer::TokenId>& ids,
                     bool skip) const override {
    return base_.decode(ids, skip);
  }
  std::string token_bytes(tokenizer::TokenId id) const override {
    return base_.token_bytes(id);
  }
  int64_t vocab_size() const override { return base_.vocab_size(); }
  std::optional<tokenizer::TokenId> token_to_id(std::string_view token) const override {
    return base_.token_to_id(token);
  }
  std::optional<std::string> id_to_token(tokenizer::TokenId id) const override {
    return base_.id_to_token(id);
  }
  std::vector<tokenizer::TokenId> special_prefix() const override {
    return base_.special_prefix();
  }
  std::vector<tokenizer::TokenId> special_suffix() const override {
    return base_.special_suffix();
  }
  std::optional<tokenizer::TokenId> bos_id() const override { return base_.bos_id(); }
  std::optional<tokenizer::TokenId> eos_id() const override { return base_.eos_id(); }
  const std::string& fingerprint() const override { return base_.fingerprint(); }
  const std::vector<std::string>& warnings() const override { return base_.warnings(); }
  const std::vector<fs::path>& files() const override { return base_.files(); }

 private:
  const tokenizer::Tokenizer& base_;
};

}  // namespace longhaul::data
