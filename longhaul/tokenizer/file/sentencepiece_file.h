#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "longhaul/base/error.h"

namespace longhaul::tokenizer {

/// The content of a SentencePiece `.model` file that decides ids and text.
struct SentencePieceFile {
  enum class PieceType { Normal = 1, Unknown, Control, UserDefined, Unused, Byte };
  struct Piece {
    std::string text;
    float score = 0;
    PieceType type = PieceType::Normal;
  };
  enum class ModelType { Unigram = 1, Bpe, Word, Char };

  std::vector<Piece> pieces;  ///< by id
  ModelType model_type = ModelType::Unigram;
  bool whitespace_as_suffix = false;
  bool byte_fallback = false;
  std::string unknown_surface = " \xE2\x81\x87 ";
  std::string bos_piece = "<s>";
  std::string eos_piece = "</s>";
  std::string charsmap;  ///< empty if characters stay as they are
  bool add_dummy_prefix = true;
  bool remove_extra_whitespaces = true;
  bool escape_whitespaces = true;
};

/// Thrown for a file that is cut short or corrupt.
struct DamagedModel : InputError {
  using InputError::InputError;
};

/// Reads the protocol buffer; `name` is its path, for messages. Throws DamagedModel with
/// the byte where the file is damaged, and InputError for what is whole and not
/// supported.
SentencePieceFile parse_sentencepiece(std::string_view bytes, std::string_view name);

}  // namespace longhaul::tokenizer
