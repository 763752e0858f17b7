#pragma once

#include <cstdint>

namespace longhaul::data {

/// A pseudo-random permutation of [0, size) chosen by a key. Any element is computed
/// alone, in constant expected time and no memory: a balanced Feistel network over the
/// next power of four, walked until it lands inside the range (fewer than 4 walks on
/// average). Immutable; any thread may use it.
class Permutation {
 public:
  /// 1 <= size <= 2^62.
  Permutation(int64_t size, uint64_t key);
  int64_t size() const { return size_; }
  /// Where 0 <= index < size goes.
  int64_t operator()(int64_t index) const;

 private:
  uint64_t encrypt(uint64_t value) const;
  int64_t size_;
  uint64_t key_;
  int half_bits_;
};

}  // namespace longhaul::data
