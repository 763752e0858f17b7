#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace longhaul::layout {

// The bytes that one rank of a group sends to the other ranks in an operation of comm/.
// Bytes that a rank keeps for itself are not counted.

/// The operations of comm/ (comm/communicator.h).
enum class Verb {
  SendRecv,
  AllReduce,
  AllGather,
  ReduceScatter,
  AllToAll,
  Broadcast,
  Barrier
};
inline constexpr size_t kVerbs = 7;

/// Returns the verb's name in messages and tables: "all_reduce" ...
const char* verb_name(Verb verb);

/// A reduction whose gathered buffers have at most this many bytes takes one round: every
/// rank gathers all buffers and adds them up itself.
inline constexpr int64_t kOneRoundBytes = int64_t{32} << 10;
/// An all-reduce, and a broadcast of a long buffer, cut their buffer among the ranks at
/// multiples of this many elements.
inline constexpr int64_t kReducePartAlign = 16;

/// Returns the bytes of a row on its way to an expert: its features, and its fp32 weight
/// in the last four bytes. A row begins at a multiple of 16 bytes, as kernels want it.
constexpr int64_t packed_row_bytes(int64_t features, int64_t element_bytes) {
  constexpr int64_t kAlign = 16;
  return (features * element_bytes + 4 + kAlign - 1) / kAlign * kAlign;
}

/// A buffer that is cut among ranks. The last parts may be shorter than the others, or
/// empty.
struct BufferParts {
  int64_t count;   ///< elements of the buffer
  int64_t length;  ///< elements of a part

  /// Cuts `count` elements among the ranks of a group.
  static constexpr BufferParts of(int64_t count, int64_t ranks) {
    const int64_t each = (count + ranks - 1) / ranks;
    return {count, (each + kReducePartAlign - 1) / kReducePartAlign * kReducePartAlign};
  }
  /// Returns the first element of a rank's part; size() returns the number of its
  /// elements.
  constexpr int64_t begin(int64_t rank) const { return std::min(count, rank * length); }
  constexpr int64_t size(int64_t rank) const { return begin(rank + 1) - begin(rank); }
};

/// Returns the bytes that a rank sends in an all-gather in which each rank's part has
/// `part` bytes, or in a reduce-scatter in which each rank's result has `part` bytes.
constexpr int64_t sent_by_cut(int64_t ranks, int64_t part) { return (ranks - 1) * part; }
/// Returns the bytes that rank `index` sends for a buffer of `count` elements. The more
/// elements a rank adds up, the more it sends.
constexpr int64_t sent_by_all_reduce(int64_t ranks, int64_t index, int64_t count,
                                     int64_t element_bytes) {
  if (ranks == 1) return 0;
  if (count * element_bytes * ranks <= kOneRoundBytes) {
    return (ranks - 1) * count * element_bytes;
  }
  const int64_t part = BufferParts::of(count, ranks).size(index);
  return (count + (ranks - 2) * part) * element_bytes;
}
/// Returns the bytes that rank `index` sends of a buffer of `count` elements that comes
/// from rank 0. A short buffer goes down a tree. If the buffer is long, rank 0 sends each
/// rank one part, which that rank sends to the others.
constexpr int64_t sent_by_broadcast(int64_t ranks, int64_t index, int64_t count,
                                    int64_t element_bytes) {
  if (ranks == 2 || count * element_bytes <= kOneRoundBytes) {
    const int64_t lowest_bit = index == 0 ? ranks : index & -index;
    int64_t children = 0;
    for (int64_t step = 1; step < lowest_bit && index + step < ranks; step *= 2) {
      ++children;
    }
    return children * count * element_bytes;
  }
  const int64_t part = BufferParts::of(count, ranks).size(index);
  return ((index == 0 ? count : 0) + (ranks - 2) * part) * element_bytes;
}

}  // namespace longhaul::layout
