#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "longhaul/tokenizer/pieces/merge_rules.h"
#include "longhaul/tokenizer/pieces/piece_cache.h"
#include "longhaul/tokenizer/pieces/vocabulary.h"

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

/// The model in tokenizer.json. The reader has checked ids and merges.
struct BpeSpec {
  Vocabulary vocab;
  std::vector<Merge> merges;  ///< by rank
  std::optional<uint32_t> unknown;
  bool fuse_unknown = false;
  bool ignore_merges = false;
};

/// Byte-level BPE of one piece. Immutable; any number of threads may use the model.
/// BpeSession is the fast way to use it.
class BpeModel {
 public:
  explicit BpeModel(const BpeSpec& spec);

  /// Writes the ids of a piece, which is not empty, and returns their number, at most
  /// piece.size(). `key` is the piece's key. Throws InputError for a byte that the
  /// vocabulary lacks.
  size_t encode(std::string_view piece, const PieceKey& key, uint32_t* ids) const;

 private:
  using ByteSpellings = std::vector<std::optional<std::string>>;

  void find_wholes(const BpeSpec& spec, const ByteSpellings& bytes);
  void find_characters(const BpeSpec& spec, const ByteSpellings& bytes);
  size_t spell(std::string_view piece, uint32_t* ids) const;
  size_t spell_bytes(std::string_view piece, uint32_t* ids) const;

  MergeRules rules_;
  std::array<std::optional<uint32_t>, 256> bytes_;
  std::optional<uint32_t> unknown_;
  bool fuse_unknown_;
  WholeWords wholes_;
  /// For each code point the token to which its bytes always merge if neither character
  /// beside it is ASCII; kNone if that is not certain.
  std::vector<uint32_t> characters_;
};

}  // namespace longhaul::tokenizer
