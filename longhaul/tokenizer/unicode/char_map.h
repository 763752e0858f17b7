#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace longhaul::tokenizer {

/// SentencePiece's compiled map of strings to strings: a double-array trie and a block of
/// texts. Immutable; any number of threads may use a map.
class CharMap {
 public:
  /// Makes a map without entries.
  CharMap() = default;
  /// `bytes` are the size of the trie as little-endian u32, the trie, and the texts.
  /// Throws InputError if they are not. Damage inside the trie is found while looking up.
  explicit CharMap(std::string_view bytes);

  /// Returns the value of the shortest key that starts `text`.
  std::optional<std::string_view> shortest_prefix(std::string_view text) const;
  struct Found {
    size_t bytes;  ///< bytes of the key
    std::string_view text;
  };
  /// Returns the longest key that starts `text`.
  std::optional<Found> longest_prefix(std::string_view text) const;

 private:
  template <typename Visit>
  void visit_prefixes(std::string_view text, Visit&& visit) const;
  std::string_view text_at(uint32_t offset) const;

  std::vector<uint32_t> units_;
  std::string texts_;  // each ends with a NUL
};

}  // namespace longhaul::tokenizer
