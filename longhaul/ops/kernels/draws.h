#pragma once

#include "longhaul/ops/kernels/simd.h"

// These are the random words for dropout, drawn for a vector of counters at a time.

namespace longhaul::kernels {
namespace {

/// The random generator of dropout: Philox4x32-10 (Salmon et al., "Parallel Random
/// Numbers: As Easy as 1, 2, 3", SC11).
class Philox {
 public:
  explicit Philox(uint64_t key) {
    auto k0 = static_cast<uint32_t>(key);
    auto k1 = static_cast<uint32_t>(key >> 32);
    for (int r = 0; r < kRounds; ++r) {
      keys_[r][0] = k0;
      keys_[r][1] = k1;
      k0 += 0x9E3779B9U;
      k1 += 0xBB67AE85U;
    }
  }

  /// Replaces counters by draws. Even and odd lanes are drawn in two sets, each in the
  /// lower words of 64 bits; the upper words of a set are not used.
  LH_INLINE void draw(Words (&c)[4]) const {
    Words odd[4];
    for (int i = 0; i < 4; ++i) odd[i] = upper_words(c[i]);
#pragma GCC unroll 10
    for (int r = 0; r < kRounds; ++r) {
      round(r, c);
      round(r, odd);
    }
    for (int i = 0; i < 4; ++i) c[i] = even_and_odd(c[i], odd[i]);
  }

 private:
  static constexpr int kRounds = 10;

  LH_INLINE void round(int r, Words (&c)[4]) const {
    const Words p0 = multiply_lower(c[0], same_words(0xD2511F53U));
    const Words p1 = multiply_lower(c[2], same_words(0xCD9E8D57U));
    c[0] = exclusive_or(upper_words(p1), c[1], same_words(keys_[r][0]));
    c[2] = exclusive_or(upper_words(p0), c[3], same_words(keys_[r][1]));
    c[1] = p1;
    c[3] = p0;
  }

  uint32_t keys_[kRounds][2];
};

/// The two words of a counter that hold the number of the sequence, below 2^48, and of
/// the head, below 2^16.
struct SequenceWords {
  LH_INLINE SequenceWords(int64_t sequence, int64_t head)
      : lower(static_cast<uint32_t>(sequence)),
        upper(static_cast<uint32_t>(sequence >> 32 << 16 | head)) {}
  uint32_t lower, upper;
};

/// The number of each lane.
alignas(64) constexpr uint32_t kLaneNumber[16] = {0, 1, 2,  3,  4,  5,  6,  7,
                                                  8, 9, 10, 11, 12, 13, 14, 15};

}  // namespace
}  // namespace longhaul::kernels
