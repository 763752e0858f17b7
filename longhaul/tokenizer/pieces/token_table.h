#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "longhaul/tokenizer/pieces/vocabulary.h"
#include "longhaul/tokenizer/split/added_tokens.h"

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

}  // namespace longhaul::tokenizer
