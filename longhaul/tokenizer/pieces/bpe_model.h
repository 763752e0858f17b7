#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "longhaul/tokenizer/pieces/merge_rules.h"
#include "longhaul/tokenizer/pieces/vocabulary.h"
#include "longhaul/tokenizer/pieces/whole_words.h"

namespace longhaul::tokenizer {

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
  /// For each code point the token that its bytes become beside any characters that are
  /// not ASCII; kNone if that is not certain.
  std::vector<uint32_t> characters_;
};

}  // namespace longhaul::tokenizer
