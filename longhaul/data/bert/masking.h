#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "longhaul/data/bert/draws.h"
#include "longhaul/tokenizer/tokenizer.h"

namespace longhaul::data {

/// What masking needs to know of a vocabulary.
struct BertVocabulary {
  int32_t cls = 0;
  int32_t sep = 0;
  int32_t mask = 0;
  int32_t pad = 0;
  std::vector<uint8_t> special;    ///< per id: [CLS] [SEP] [MASK] [PAD] [UNK]'s like
  std::vector<uint8_t> continues;  ///< per id: a piece inside a word ("##ing")
  std::vector<int32_t> ordinary;   ///< ids that may stand in for a token: none special

  /// InputError when the tokenizer lacks [CLS], [SEP], [MASK] or [PAD], and with
  /// `whole_words` when it has no pieces that begin with ##.
  static BertVocabulary of(const tokenizer::Tokenizer& tokenizer, bool whole_words);
};

struct MaskOptions {
  double share = 0.15;           ///< of a row's tokens, special ones counted, rounded
  int64_t max_predictions = 20;  ///< P
  bool whole_words = false;      ///< all pieces of a word or none
};

/// How the chosen positions were treated.
struct MaskCounts {
  int64_t masked = 0;    ///< [MASK] stands there
  int64_t kept = 0;      ///< the token itself
  int64_t replaced = 0;  ///< another token, drawn from all ordinary ones
};

/// A chosen position and the token that stood there.
struct MaskedToken {
  int32_t position = 0;
  int32_t id = 0;
};

/// Chooses positions of a row at random, no special token among them, and puts [MASK]
/// (80 %), the token itself (10 %) or a random one (10 %) there. Returns them by
/// position.
std::vector<MaskedToken> mask_tokens(const BertVocabulary& vocabulary,
                                     const MaskOptions& options, Draws& draws,
                                     std::vector<int32_t>& row, MaskCounts& counts);

}  // namespace longhaul::data
