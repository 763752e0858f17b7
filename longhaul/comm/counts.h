#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace longhaul::comm {

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

/// "all_reduce" ...
const char* verb_name(Verb verb);

struct VerbCount {
  int64_t calls = 0;
  int64_t bytes =
      0;  ///< sent to other ranks; what a rank keeps for itself is not counted
  bool operator==(const VerbCount&) const = default;
};

/// What one rank did in a group. With n ranks and B the bytes of the whole buffer:
/// all_gather and reduce_scatter send (n - 1) / n B, all_to_all the same; all_reduce
/// sends B + (n - 2) P for a rank that owns P bytes of the cut buffer (2 (n - 1) / n B
/// where it divides), or (n - 1) B when it is small (CommOptions::one_round_bytes);
/// broadcast B per child in a tree, or, when long, B + (n - 2) P from the root and (n -
/// 2) P from the others; send_recv what it sends; a barrier nothing.
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
    }
    return sum;
  }
  bool operator==(const CommCounts&) const = default;

 private:
  std::array<VerbCount, kVerbs> counts_{};
};

/// Where an operation's messages are counted: at its communicator, and at the rank's sum
/// for groups of that name. Both outlive the operation.
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
};

}  // namespace longhaul::comm
