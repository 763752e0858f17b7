#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "longhaul/base/random.h"
#include "longhaul/tokenizer/tokenizer.h"

namespace longhaul::data {

/// Random numbers for one purpose, document and pass. The numbers depend on purpose,
/// document, pass, seed and the order of the draws only, not on threads.
class Draws {
 public:
  /// Requires pass < 2^24 and fewer than 2^42 draws.
  Draws(uint64_t seed, std::string_view purpose, int64_t pass, int64_t document)
      : key_(random_key(seed, purpose)),
        document_(static_cast<uint64_t>(document)),
        counter_(static_cast<uint64_t>(pass) << 40) {}

  uint32_t next() {
    if (used_ == block_.size()) {
      block_ = philox(key_, document_, counter_++);
      used_ = 0;
    }
    return block_[used_++];
  }
  /// Draws uniformly from [0, end), 1 <= end < 2^62, without bias.
  int64_t below(int64_t end) {
    const auto range = static_cast<uint64_t>(end);
    const uint64_t unfair = (0 - range) % range;  // 2^64 modulo the range
    while (true) {
      const uint64_t high = next();
      const uint64_t value = high << 32 | next();
      if (value >= unfair) return static_cast<int64_t>(value % range);
    }
  }
  /// Draws uniformly from [first, last].
  int64_t between(int64_t first, int64_t last) { return first + below(last - first + 1); }
  /// Returns true with this probability.
  bool chance(double probability) {
    return static_cast<double>(next()) * 0x1.0p-32 < probability;
  }

 private:
  uint64_t key_;
  uint64_t document_;
  uint64_t counter_;
  std::array<uint32_t, 4> block_{};
  size_t used_ = 4;
};

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
