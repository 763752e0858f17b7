#pragma once

#include <cstdint>

namespace longhaul::layout {

// The bytes that one rank of a group sends to the other ranks in an operation of comm/.
// Bytes that a rank keeps for itself are not counted.

/// A reduction whose gathered buffers have at most this many bytes takes one round: every
/// rank gathers all buffers and adds them up itself.
inline constexpr int64_t kOneRoundBytes = int64_t{32} << 10;
/// An all-reduce cuts its buffer among the ranks at multiples of this many elements.
inline constexpr int64_t kReducePartAlign = 16;

/// Returns the bytes that a rank sends, when each rank's part has `part` bytes.
constexpr int64_t sent_by_all_gather(int64_t ranks, int64_t part) {
  return (ranks - 1) * part;
}
/// Returns the bytes that a rank sends, when a rank's result has `part` bytes.
constexpr int64_t sent_by_reduce_scatter(int64_t ranks, int64_t part) {
  return (ranks - 1) * part;
}
/// Returns the bytes that rank `index` sends for a buffer of `count` elements. A rank
/// sends more the larger the part that it adds up.
constexpr int64_t sent_by_all_reduce(int64_t ranks, int64_t index, int64_t count,
                                     int64_t element_bytes) {
  if (ranks == 1) return 0;
  if (count * element_bytes * ranks <= kOneRoundBytes) {
    return (ranks - 1) * count * element_bytes;
  }
  const int64_t each = (count + ranks - 1) / ranks;
  const int64_t length =
      (each + kReducePartAlign - 1) / kReducePartAlign * kReducePartAlign;
  const int64_t begin = index * length < count ? index * length : count;
  const int64_t end = begin + length < count ? begin + length : count;
  return (count + (ranks - 2) * (end - begin)) * element_bytes;
}

}  // namespace longhaul::layout
