#pragma once

#include <cstdint>

namespace longhaul::data {

/// A pseudo-random permutation of [0, size) that a key chooses; it orders the sequences
/// of a source. Any element is computed alone, in constant expected time and without
/// memory. A balanced Feistel network over the next power of four is applied until the
/// value lies inside the range, fewer than 4 times on average. Immutable; any thread may
/// use a permutation.
class Permutation {
 public:
  /// Requires 1 <= size <= 2^62.
  Permutation(int64_t size, uint64_t key);
  int64_t size() const { return size_; }
  /// Returns the element that `index` goes to, 0 <= index < size.
  int64_t operator()(int64_t index) const;
  /// Returns the index that goes to `element`, 0 <= element < size.
  int64_t index_of(int64_t element) const;

 private:
  uint64_t encrypt(uint64_t value) const;
  uint64_t decrypt(uint64_t value) const;
  int64_t size_;
  uint64_t key_;
  int half_bits_;
};

}  // namespace longhaul::data
