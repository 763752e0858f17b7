#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "longhaul/base/random.h"

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

}  // namespace longhaul::data
