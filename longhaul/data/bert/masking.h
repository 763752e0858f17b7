#pragma once

#include <cstdint>
#include <vector>

#include "longhaul/data/bert/draws.h"
#include "longhaul/tokenizer/tokenizer.h"

namespace longhaul::data {

/// The facts about a vocabulary that masking needs.
struct BertVocabulary {
  int32_t cls = 0;
  int32_t sep = 0;
  int32_t mask = 0;
  int32_t pad = 0;
  std::vector<uint8_t> special;    ///< by id: 1 for [CLS], [SEP], [MASK] and [PAD]
  std::vector<uint8_t> continues;  ///< by id: 1 for a piece inside a word ("##ing")
  /// Ids that may replace a token; no special tokens.
  std::vector<int32_t> ordinary;

  /// Throws InputError when the tokenizer lacks [CLS], [SEP], [MASK] or [PAD], and with
  /// `whole_words` when the tokenizer has no pieces that begin with ##.
  static BertVocabulary of(const tokenizer::Tokenizer& tokenizer, bool whole_words);
};

struct MaskOptions {
  /// Share of a row's tokens that is masked; special tokens count as tokens of the row.
  double share = 0.15;
  int64_t max_predictions = 20;  ///< the most masked positions of a row
  bool whole_words = false;      ///< mask all pieces of a word or none of them
};

/// Counts of how the chosen positions were treated.
struct MaskCounts {
  int64_t masked = 0;    ///< replaced by [MASK]
  int64_t kept = 0;      ///< left unchanged
  int64_t replaced = 0;  ///< replaced by a random ordinary token
};

/// A chosen position and the token that was there before masking.
struct MaskedToken {
  int32_t position = 0;
  int32_t id = 0;
};

/// Chooses random positions of a row, except positions of special tokens. Puts [MASK] (80
/// %), the token itself (10 %) or a random token (10 %) at each chosen position. Returns
/// the chosen positions in ascending order.
std::vector<MaskedToken> mask_tokens(const BertVocabulary& vocabulary,
                                     const MaskOptions& options, Draws& draws,
                                     std::vector<int32_t>& row, MaskCounts& counts);

}  // namespace longhaul::data
