#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "longhaul/layout/sent_bytes.h"

namespace longhaul::comm {

using layout::kVerbs;
using layout::Verb;
using layout::verb_name;

struct VerbCount {
  int64_t calls = 0;
  int64_t bytes =
      0;  ///< sent to other ranks; what a rank keeps for itself is not counted
  int64_t messages = 0;  ///< sent over the host; a device's collectives count none
  bool operator==(const VerbCount&) const = default;
};

/// Calls and sent bytes of one rank in a group, by verb. With n ranks and a buffer of B
/// bytes, a rank sends
/// - in an all_gather, a reduce_scatter or an all_to_all (n - 1) / n B;
/// - in an all_reduce B + (n - 2) P, where P are the bytes of the rank's part of the cut
///   buffer: 2 (n - 1) / n B if the buffer divides evenly;
/// - in an all_reduce of few 64-bit numbers (CommOptions::tree_bytes) B to each child in
/// a
///   tree, and to its parent B, or B for itself and each rank below where floating-point
///   numbers are added;
/// - in a broadcast of a small buffer B to each child, and so with two ranks; else the
///   root sends B + (n - 2) P and each other rank (n - 2) P;
/// - in a send_recv the bytes of its sends, and in a barrier nothing.
class CommCounts {
 public:
  VerbCount& operator[](Verb verb) { return counts_[static_cast<size_t>(verb)]; }
  const VerbCount& operator[](Verb verb) const {
    return counts_[static_cast<size_t>(verb)];
  }
  VerbCount total() const {
    VerbCount sum;
    for (const VerbCount& c : counts_) {
      sum.calls += c.calls;
      sum.bytes += c.bytes;
      sum.messages += c.messages;
    }
    return sum;
  }
  bool operator==(const CommCounts&) const = default;

 private:
  std::array<VerbCount, kVerbs> counts_{};
};

/// The two counters of an operation's messages: the counts of its communicator, and the
/// ledger's sum for groups of that name. Both outlive the operation.
struct Tally {
  CommCounts& own;
  CommCounts& group;
  Verb verb;
  void call() const {
    ++own[verb].calls;
    ++group[verb].calls;
  }
  void sent(size_t bytes) const {
    own[verb].bytes += static_cast<int64_t>(bytes);
    group[verb].bytes += static_cast<int64_t>(bytes);
  }
  void message() const {
    ++own[verb].messages;
    ++group[verb].messages;
  }
};

}  // namespace longhaul::comm
