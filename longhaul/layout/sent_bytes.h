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

/// The bytes of a number of the host: fp64 or a 64-bit integer.
inline constexpr int64_t kHostNumberBytes = 8;

/// A broadcast of a buffer of at most this many bytes goes through a tree, and so does an
/// all-reduce of so many bytes of the host's numbers. About so many bytes pass a link in
/// the time of the two messages for each rank that the other form of an all-reduce takes.
inline constexpr int64_t kTreeBytes = int64_t{16} << 10;

/// A rank in a binomial tree over `size` ranks. `place` is the rank's number counted from
/// the root. The number of a rank's parent is the rank's number without its lowest set
/// bit, so a rank and all ranks below it have adjacent numbers.
struct TreePlace {
  int64_t place;
  int64_t size;

  constexpr bool is_root() const { return place == 0; }
  constexpr int64_t lowest_bit() const { return is_root() ? size : place & -place; }
  constexpr int64_t parent() const { return place - lowest_bit(); }
  /// Returns how many ranks this one and those below it are.
  constexpr int64_t span() const { return std::min(lowest_bit(), size - place); }
  /// Returns child `i`, counted from the child with the lowest number. The last child's
  /// is children() - 1.
  constexpr TreePlace child(int64_t i) const { return {place + (int64_t{1} << i), size}; }
  constexpr int64_t children() const {
    int64_t count = 0;
    while ((int64_t{1} << count) < span()) ++count;
    return count;
  }
};
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
/// Returns the bytes that rank `index` sends for a buffer of `count` floating-point
/// elements. A tree carries fp64 numbers of each rank to rank 0, and the sums back. A
/// rank that adds up more elements of another buffer sends more.
constexpr int64_t sent_by_all_reduce(int64_t ranks, int64_t index, int64_t count,
                                     int64_t element_bytes) {
  if (ranks == 1) return 0;
  if (element_bytes == kHostNumberBytes && count * element_bytes <= kTreeBytes) {
    const TreePlace tree{index, ranks};
    return ((tree.is_root() ? 0 : tree.span()) + tree.children()) * count * element_bytes;
  }
  const int64_t part = BufferParts::of(count, ranks).size(index);
  return (count + (ranks - 2) * part) * element_bytes;
}
/// Returns the bytes that rank `index` sends of a buffer of `count` elements that comes
/// from rank 0. A short buffer goes down a tree. If the buffer is long, rank 0 sends each
/// rank one part, which that rank sends to the others.
constexpr int64_t sent_by_broadcast(int64_t ranks, int64_t index, int64_t count,
                                    int64_t element_bytes) {
  if (ranks == 2 || count * element_bytes <= kTreeBytes) {
    return TreePlace{index, ranks}.children() * count * element_bytes;
  }
  const int64_t part = BufferParts::of(count, ranks).size(index);
  return ((index == 0 ? count : 0) + (ranks - 2) * part) * element_bytes;
}

}  // namespace longhaul::layout
