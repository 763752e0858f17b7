#pragma once

#include <string>

#include "longhaul/tokenizer/pieces/piece_model.h"
#include "longhaul/tokenizer/pieces/vocabulary.h"
#include "longhaul/tokenizer/tables/byte_trie.h"

namespace longhaul::tokenizer {

struct WordPieceSpec {
  Vocabulary vocab;
  uint32_t unknown = 0;
  std::string prefix = "##";  ///< prefix of entries inside a word
  uint64_t max_chars = 100;   ///< longer words are unknown
};

/// A WordPiece model: takes the longest entry again and again. A word that cannot be
/// covered in this way is one unknown token.
class WordPieceModel final : public PieceModel {
 public:
  explicit WordPieceModel(const WordPieceSpec& spec);
  std::unique_ptr<Session> session() const override;

 private:
  class WordSession;
  void encode_word(std::string_view word, std::vector<uint32_t>& out) const;

  ByteTrie starts_;  // entries that may begin a word
  ByteTrie inside_;  // entries that may continue a word, without their prefix
  uint32_t unknown_;
  uint64_t max_chars_;
};

}  // namespace longhaul::tokenizer
