#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace longhaul::layout {

/// Neighbouring positions of a sequence that one rank holds.
struct ContextChunk {
  int64_t begin = 0;   ///< index in the sequence
  int64_t local = 0;   ///< index among the rank's positions
  int64_t length = 0;  ///< equal for all chunks
};

/// Says which positions of a sequence each rank of a context-parallel group holds. A
/// sequence is cut into 2 * ranks equal chunks; rank r holds chunks r and
/// 2 ranks - 1 - r, in this order side by side. Under a causal mask early chunks see few
/// keys and late chunks many, so that with these pairs every rank has the same work.
/// Brandon et al., "Striped Attention", discuss the imbalance; Meta, "The Llama 3 Herd of
/// Models", section 3.3.2, uses such pairs. A single rank holds one chunk, the whole
/// sequence.
class ContextLayout {
 public:
  /// Cuts sequences of `seq_len` positions. Throws ConfigError, which names the nearest
  /// possible lengths, unless `seq_len` is a multiple of 2 * ranks.
  ContextLayout(int64_t seq_len, int ranks);

  int ranks() const { return ranks_; }
  int64_t seq_len() const { return seq_len_; }
  /// Returns the number of positions that a rank holds of a sequence.
  int64_t local_len() const { return seq_len_ / ranks_; }
  /// Returns the chunks of `rank` in the order of its positions, which is also their
  /// order in the sequence.
  std::vector<ContextChunk> chunks(int rank) const;

  /// Returns the part [R, S / ranks] that `rank` holds of `rows` [R, S], which are values
  /// per position (tokens, targets, positions, document starts). Values do not change:
  /// document starts stay indices of the whole sequence.
  std::vector<int32_t> take(std::span<const int32_t> rows, int rank) const;

 private:
  int64_t seq_len_;
  int ranks_;
};

}  // namespace longhaul::layout
