#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "longhaul/checkpoint/read/byte_runs.h"

namespace longhaul::checkpoint {

// Who reads what when several ranks of a machine want parts of the same files: made by
// every rank from the same numbers, so that all have the same plan.

/// Neighbouring blocks of a file, read at once by one rank.
struct Chunk {
  uint64_t file = 0;
  uint64_t begin = 0;
  uint64_t bytes = 0;
  int reader = 0;
  bool passed = false;  ///< a rank other than its reader wants some of it
};

/// Blocks of a chunk at most. The buffers of a rank are multiples of it.
inline constexpr uint64_t kChunkBlocks = 4;

struct PlanLimits {
  /// What a rank may have read or received for one round of passing.
  size_t read_chunks = 2;
  uint64_t received_bytes = uint64_t{32} << 20;
};

class NodePlan {
 public:
  /// `runs_of` has the runs of each rank, sorted by file and start; `file_sizes` of files
  /// that hold wanted bytes. A block that several ranks want is in one chunk; chunks are
  /// shared out evenly, to ranks that want them where that is possible. `readers`: the
  /// ranks that can read a file, by file; empty: all can. What has readers of its own is
  /// read by those that want it as far as they can, however uneven that is.
  NodePlan(const std::vector<std::vector<ByteRuns>>& runs_of,
           const std::vector<uint64_t>& file_sizes, const PlanLimits& limits = {},
           const std::vector<std::vector<int>>& readers = {});

  /// Sorted by file and offset.
  const std::vector<Chunk>& chunks() const { return chunks_; }
  /// The chunks that are passed on, in rounds: in each, no rank exceeds the limits.
  const std::vector<std::vector<uint32_t>>& rounds() const { return rounds_; }
  /// What a rank reads, in the order of reading: what is passed on comes first, in the
  /// order of the rounds.
  std::vector<uint32_t> read_by(int rank) const;
  /// Which of a rank's runs touch a chunk, ascending.
  std::span<const uint32_t> runs_in(int rank, uint32_t chunk) const;
  /// How many bytes of a chunk a rank wants; what is wanted twice counts twice.
  uint64_t wanted(int rank, uint32_t chunk) const;

 private:
  void make_chunks(const std::vector<std::vector<ByteRuns>>& runs_of,
                   const std::vector<uint64_t>& file_sizes);
  void find_runs(size_t rank, const std::vector<ByteRuns>& runs);
  void choose_readers(const std::vector<std::vector<int>>& readers);
  void make_rounds(const PlanLimits& limits);

  struct RankRuns {
    std::vector<uint32_t>
        first;  ///< by chunk: its first place in `runs`; one more at the end
    std::vector<uint32_t> runs;
    std::vector<uint64_t> wanted;  ///< by chunk
  };
  std::vector<Chunk> chunks_;
  std::vector<RankRuns> ranks_;
  std::vector<std::vector<uint32_t>> rounds_;
};

}  // namespace longhaul::checkpoint
