#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "longhaul/base/json.h"
#include "longhaul/tokenizer/pieces/vocabulary.h"
#include "longhaul/tokenizer/split/added_tokens.h"
#include "longhaul/tokenizer/tokenizer.h"

namespace longhaul::tokenizer {

/// The tokens of a tokenizer by id and by text. Immutable; any number of threads may use
/// a table.
class TokenTable {
 public:
  /// Which id counts if two tokens have the same text.
  enum class Equals { First, Last };
  struct Entry {
    bool known = false;  ///< false if no token has the id
    bool added = false;
    bool special = false;
    std::string token;  ///< as written
  };

  /// Takes a vocabulary, and added tokens that replace entries or come behind them.
  TokenTable(Vocabulary vocabulary, const std::vector<AddedToken>& added, Equals equals);

  /// Returns the bound that all ids are below.
  size_t size() const { return entries_.size(); }
  /// Returns nullptr if no token has the id.
  const Entry* find(uint32_t id) const {
    return id < entries_.size() && entries_[id].known ? &entries_[id] : nullptr;
  }
  /// Throws InputError if no token has the id.
  const Entry& at(uint32_t id) const;
  std::optional<uint32_t> id_of(std::string_view token) const;

 private:
  std::vector<Entry> entries_;
  std::map<std::string, uint32_t, std::less<>> ids_;
};

/// The tokens that open and close a document, and the files that say so.
struct TokenizerSurroundings {
  std::optional<TokenId> bos;
  std::optional<TokenId> eos;
  std::vector<fs::path> files;
  std::vector<std::string> warnings;
};

/// The ids before and after a single text.
struct Affixes {
  std::vector<TokenId> prefix;
  std::vector<TokenId> suffix;
};

/// The common part of all tokenizers that are read from a file: a table of tokens, ids
/// around a text, a fingerprint, and facts from the files beside the file.
class FileTokenizer : public Tokenizer {
 public:
  using Tokenizer::encode;
  void encode(std::string_view text, bool add_special_tokens,
              std::vector<TokenId>& out) const final;

  int64_t vocab_size() const final { return static_cast<int64_t>(table_.size()); }
  std::optional<TokenId> token_to_id(std::string_view token) const final {
    return table_.id_of(token);
  }
  std::optional<std::string> id_to_token(TokenId id) const final;
  std::vector<TokenId> special_prefix() const final { return affixes_.prefix; }
  std::vector<TokenId> special_suffix() const final { return affixes_.suffix; }
  const std::string& fingerprint() const final { return fingerprint_; }

  void set_surroundings(TokenizerSurroundings around) { around_ = std::move(around); }
  std::optional<TokenId> bos_id() const final { return around_.bos; }
  std::optional<TokenId> eos_id() const final { return around_.eos; }
  const std::vector<fs::path>& files() const final { return around_.files; }
  const std::vector<std::string>& warnings() const final { return around_.warnings; }

 protected:
  FileTokenizer(TokenTable table, Affixes affixes, std::string fingerprint)
      : table_(std::move(table)),
        affixes_(std::move(affixes)),
        fingerprint_(std::move(fingerprint)) {}
  const TokenTable& table() const { return table_; }
  void set_affixes(Affixes affixes, std::string fingerprint) {
    affixes_ = std::move(affixes);
    fingerprint_ = std::move(fingerprint);
  }
  /// Appends the ids of valid UTF-8, without the ids around the text.
  virtual void encode_text(std::string_view text, std::vector<TokenId>& out) const = 0;

 private:
  TokenTable table_;
  Affixes affixes_;
  std::string fingerprint_;
  TokenizerSurroundings around_;
};

/// Reads the files beside a tokenizer's own file. See auto_tokenizer_differences for
/// `root`.
TokenizerSurroundings read_surroundings(const fs::path& file, const Json& root,
                                        const Tokenizer& tokenizer);

}  // namespace longhaul::tokenizer
