#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "longhaul/checkpoint/read/stored_tensors.h"
#include "longhaul/comm/communicator.h"

namespace longhaul::checkpoint {

/// What reading took, for one rank or summed over ranks (`seconds` is the slowest
/// rank's).
struct ReadReport {
  uint64_t read = 0;    ///< bytes read from storage
  uint64_t wanted = 0;  ///< stored bytes of the requests
  uint64_t passed = 0;  ///< bytes sent to other ranks of the machine
  double seconds = 0.0;

  /// Adds a report of later reading.
  ReadReport& operator+=(const ReadReport& next);
  /// Returns "12.0 GB read in 6.1 s (1.97 GB/s), 36.0 GB passed between ranks".
  std::string describe() const;
};

/// Returns the sums over all ranks, and the longest time. Collective.
ReadReport total(const ReadReport& mine, comm::Communicator& group);

/// Fills the requests of all ranks of a machine together. Each block that any rank wants
/// is read and verified once, by one rank, and passed to the other ranks that want some
/// of the block. Only the wanted bytes of a box in the middle of rows are passed. Ranks
/// may have any requests, also none. Beside the outputs a rank holds about 64 MiB: 24 MiB
/// that are read ahead on a thread of its own, the rest for what is passed. For each run
/// of stored bytes in its boxes a rank also holds 40 bytes per rank of the machine. A
/// block that is damaged or cannot be read, and a request that does not fit what is
/// stored, throw the same error on all ranks of `node`. Then nothing is under way, all
/// ranks can go on together, and the outputs' content is undefined. `node` has the ranks
/// of this machine (comm/hosts.h); any group will do, also a single rank. Collective over
/// `node`.
ReadReport read_together(const StoredTensors& stored,
                         const std::vector<ReadRequest>& requests,
                         comm::Communicator& node);

}  // namespace longhaul::checkpoint
