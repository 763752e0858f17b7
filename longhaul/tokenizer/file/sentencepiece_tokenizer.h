#pragma once

#include "longhaul/tokenizer/file/file_tokenizer.h"
#include "longhaul/tokenizer/file/sentencepiece_file.h"
#include "longhaul/tokenizer/pieces/piece_model.h"
#include "longhaul/tokenizer/tables/byte_trie.h"
#include "longhaul/tokenizer/tables/session_pool.h"
#include "longhaul/tokenizer/unicode/char_map.h"

namespace longhaul::tokenizer {

/// The tokenizer of a SentencePiece `.model`, with the ids and texts of the sentencepiece
/// library. Control pieces ("<s>") are never found in a text and are invisible when
/// decoded.
class SentencePieceTokenizer final : public FileTokenizer {
 public:
  /// Parses the bytes of the file; `name` is its path, for messages.
  static std::unique_ptr<SentencePieceTokenizer> parse(std::string_view bytes,
                                                       std::string_view name);
  SentencePieceTokenizer(SentencePieceFile file, std::string fingerprint);

  /// Sets whether encode puts the BOS and the EOS piece around a text; the file does not
  /// say. Throws InputError if there is no such piece.
  void surround_with(bool bos, bool eos);
  std::optional<TokenId> own_bos() const { return control(file_.bos_piece); }
  std::optional<TokenId> own_eos() const { return control(file_.eos_piece); }

  std::string decode(const std::vector<TokenId>& ids,
                     bool skip_special_tokens) const override;
  std::string token_bytes(TokenId id) const override;

 private:
  void encode_text(std::string_view text, std::vector<TokenId>& out) const override;
  std::optional<TokenId> control(const std::string& piece) const;
  /// Returns the text in the characters of the vocabulary, with marks for spaces.
  std::string normalize(std::string_view text) const;
  struct Step {
    std::string_view text;
    size_t bytes;  ///< number of input bytes
  };
  Step normalize_step(std::string_view text, size_t pos) const;
  /// Returns the text of a piece. `at_start`: nothing visible stands before the piece.
  std::string surface(TokenId id, bool at_start, bool& space_dropped) const;

  SentencePieceFile file_;
  CharMap map_;
  ByteTrie user_defined_;
  std::unique_ptr<PieceModel> model_;
  mutable SessionPool<PieceSession> sessions_;
};

}  // namespace longhaul::tokenizer
