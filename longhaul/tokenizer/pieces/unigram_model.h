#pragma once

#include <string>
#include <unordered_map>

#include "longhaul/tokenizer/pieces/piece_model.h"
#include "longhaul/tokenizer/pieces/vocabulary.h"
#include "longhaul/tokenizer/tables/byte_trie.h"

namespace longhaul::tokenizer {

struct UnigramSpec {
  struct Entry {
    std::string token;
    double score = 0;
    bool matches = true;        ///< false for control, unused and byte entries
    bool user_defined = false;  ///< always preferred, as SentencePiece does
  };
  std::vector<Entry> entries;  ///< by id
  std::optional<uint32_t> unknown;
  bool byte_fallback = false;
  /// Whether to use SentencePiece's arithmetic, which adds scores in single precision and
  /// restarts from zero if the sum gets large. The score of an unknown character follows
  /// from the least score of entries that match and are not user-defined. Hugging Face
  /// adds in double precision and takes the least score of all entries.
  bool single_precision = false;
};

/// A Unigram model: the ids are the path of tokens with the highest sum of scores.
class UnigramModel final : public PieceModel {
 public:
  explicit UnigramModel(const UnigramSpec& spec);
  std::unique_ptr<Session> session() const override;

 private:
  class LatticeSession;
  /// The best way to the end of a prefix.
  struct Best {
    double score = 0;
    size_t start = SIZE_MAX;
    uint32_t id = 0;
  };
  void find_paths(std::string_view piece, std::vector<Best>& best) const;
  static void begin_anew(std::vector<Best>& best, size_t pos, size_t reached);
  void offer(Best& target, double score, size_t start, uint32_t id) const;
  void add_unknown(std::string_view text, std::vector<uint32_t>& out) const;
  double score_of(uint32_t id, size_t bytes) const;

  std::vector<double> scores_;
  std::vector<bool> user_defined_;
  std::unordered_map<std::string, uint32_t> ids_;
  ByteTrie trie_;
  ByteTokens bytes_;
  std::optional<uint32_t> unknown_;
  bool byte_fallback_;
  bool single_precision_;
  double unknown_score_ = 0;
};

}  // namespace longhaul::tokenizer
