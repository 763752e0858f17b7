#pragma once

#include <string>
#include <unordered_map>

#include "longhaul/tokenizer/pieces/merge_rules.h"
#include "longhaul/tokenizer/pieces/piece_model.h"
#include "longhaul/tokenizer/pieces/vocabulary.h"

namespace longhaul::tokenizer {

/// The parts of a character-level BPE. The reader has checked ids and merges.
struct CharBpeSpec {
  Vocabulary vocab;
  struct RankedMerge {
    Merge merge;
    uint32_t rank;
  };
  std::vector<RankedMerge> merges;
  std::optional<uint32_t> unknown;
  bool fuse_unknown = false;
  bool byte_fallback = false;
  bool ignore_merges = false;
  /// Ids below this are the vocabulary's own. Ids from here on stand for characters that
  /// merge but are no tokens; such a character is unknown if no merge takes it.
  uint32_t token_count = UINT32_MAX;
};

/// BPE over characters, as SentencePiece trains it (Llama-2, Mistral, T5-like BPE).
class CharBpeModel final : public PieceModel {
 public:
  explicit CharBpeModel(const CharBpeSpec& spec);
  std::unique_ptr<Session> session() const override;

 private:
  class CharSession;
  void encode_word(std::string_view word, std::vector<uint32_t>& out) const;
  void add_symbols(std::string_view word, std::vector<uint32_t>& out) const;
  void resolve_leftovers(std::vector<uint32_t>& out, size_t start) const;
  void find_word_starts(const CharBpeSpec& spec);
  std::optional<uint32_t> char_id(uint32_t code_point) const;

  MergeRules rules_;
  FlatMap<uint32_t> chars_;  // code point -> id
  std::unordered_map<std::string, uint32_t> wholes_;
  ByteTokens bytes_;
  std::optional<uint32_t> unknown_;
  bool fuse_unknown_;
  bool byte_fallback_;
  uint32_t token_count_;
  std::vector<std::string> leftovers_;  // texts of the ids from token_count_ on
  bool words_apart_ = false;
};

}  // namespace longhaul::tokenizer
