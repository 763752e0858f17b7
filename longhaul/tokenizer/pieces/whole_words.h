#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "longhaul/tokenizer/pieces/piece_cache.h"

namespace longhaul::tokenizer {

/// Texts that are one token each. Immutable once filled; any number of threads may use
/// it.
class WholeWords {
 public:
  /// Makes room for at most `expected` texts.
  void reserve(size_t expected) { entries_.resize(std::bit_ceil(expected * 2 + 16)); }
  /// Adds a text that is not empty and not known yet.
  void add(std::string_view text, uint32_t id);
  /// Returns the id of a text whose key is `key`.
  std::optional<uint32_t> find(const PieceKey& key, std::string_view text) const {
    const size_t mask = entries_.size() - 1;
    for (size_t slot = slot_of(key); entries_[slot].used; slot = (slot + 1) & mask) {
      const Entry& entry = entries_[slot];
      if (entry.key == key && (!key.is_long() || text == text_of(entry, text.size()))) {
        return entry.id;
      }
    }
    return std::nullopt;
  }

 private:
  struct Entry {
    PieceKey key;
    uint32_t id = 0;
    uint32_t text : 31 = 0;  // place of the text of a long word
    uint32_t used : 1 = 0;
  };
  size_t slot_of(const PieceKey& key) const {
    return static_cast<size_t>(key.hash() >> 20) & (entries_.size() - 1);
  }
  std::string_view text_of(const Entry& entry, size_t size) const {
    return std::string_view(text_).substr(entry.text, size);
  }

  std::vector<Entry, LargePages<Entry>> entries_{16};
  std::string text_;
};

}  // namespace longhaul::tokenizer
