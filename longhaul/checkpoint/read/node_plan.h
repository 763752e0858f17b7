#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "longhaul/checkpoint/read/byte_runs.h"

namespace longhaul::checkpoint {

// Plans which rank reads which part when several ranks of a machine want parts of the
// same files. Every rank makes the plan from the same numbers, so that all ranks have the
// same plan.

/// Neighbouring blocks of a file that one rank reads at once.
struct Chunk {
  uint64_t file = 0;
  uint64_t begin = 0;
  uint64_t bytes = 0;
  int reader = 0;
  bool passed = false;  ///< whether another rank than the reader wants some of it
};

/// Most blocks of a chunk. The buffers of a rank are multiples of this.
inline constexpr uint64_t kChunkBlocks = 4;

struct PlanLimits {
  /// Most chunks that a rank reads, and most bytes that it receives, for one round of
  /// passing.
  size_t read_chunks = 2;
  uint64_t received_bytes = uint64_t{32} << 20;
};

class NodePlan {
 public:
  /// Makes the plan. `runs_of` has the byte runs that each rank wants, sorted by file and
  /// start; `file_sizes` has the sizes of all files. A block that several ranks want is
  /// in one chunk. Chunks are dealt evenly, where possible to ranks that want them.
  /// `readers` has the ranks that can read each file; an empty list stands for all ranks.
  /// A file with readers of its own is read by the ranks that want it, as far as they can
  /// read it, however uneven the shares become.
  NodePlan(const std::vector<std::vector<ByteRuns>>& runs_of,
           const std::vector<uint64_t>& file_sizes, const PlanLimits& limits = {},
           const std::vector<std::vector<int>>& readers = {});

  /// Returns the chunks, sorted by file and offset.
  const std::vector<Chunk>& chunks() const { return chunks_; }
  /// Returns the chunks that are passed on, in rounds. No rank exceeds the limits in a
  /// round.
  const std::vector<std::vector<uint32_t>>& rounds() const { return rounds_; }
  /// Returns the chunks that a rank reads, in the order of reading: first the chunks that
  /// are passed on, in the order of the rounds.
  std::vector<uint32_t> read_by(int rank) const;
  /// Returns which of a rank's wanted byte runs touch a chunk, ascending.
  std::span<const uint32_t> runs_in(int rank, uint32_t chunk) const;
  /// Returns how many bytes of a chunk a rank wants; bytes that it wants twice count
  /// twice.
  uint64_t wanted(int rank, uint32_t chunk) const;

 private:
  void make_chunks(const std::vector<std::vector<ByteRuns>>& runs_of,
                   const std::vector<uint64_t>& file_sizes);
  void find_runs(size_t rank, const std::vector<ByteRuns>& runs);
  void choose_readers(const std::vector<std::vector<int>>& readers);
  void make_rounds(const PlanLimits& limits);

  struct RankRuns {
    std::vector<uint32_t>
        first;  ///< by chunk: its first index in `runs`; one more at the end
    std::vector<uint32_t> runs;
    std::vector<uint64_t> wanted;  ///< bytes by chunk
  };
  std::vector<Chunk> chunks_;
  std::vector<RankRuns> ranks_;
  std::vector<std::vector<uint32_t>> rounds_;
};

}  // namespace longhaul::checkpoint
