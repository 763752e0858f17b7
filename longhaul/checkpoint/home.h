#pragma once

#include <optional>
#include <string>

#include "longhaul/comm/communicator.h"
#include "longhaul/run/run_past.h"

namespace longhaul::checkpoint {

// Whether all ranks see the directories of one run. A mount that one node has lost leaves
// an empty directory there, which looks like that of a run that begins. So each rank
// reads, on its own machine, whose a directory is (run/run_past.h) and compares it with
// what rank 0 has found. Whoever differs is named with its rank, its node and the path. A
// broadcast, one small read of every rank and one reduction, on any number of ranks.

/// Seconds that a name which rank 0 has just made may take to be seen on other machines:
/// clients of network file systems remember for up to a minute that it was absent.
inline constexpr double kNameSeconds = 90.0;

/// The identity that rank 0's run_dir holds, on all ranks; nothing where no rank's does.
/// TemporaryError where only another rank's does. Writes nothing. Collective.
std::optional<std::string> find_run(const fs::path& run_dir, comm::Communicator& world);

/// TemporaryError unless every rank's run_dir is that of `run`. `patience`: how many
/// seconds a rank looks again while it sees no identity. Collective.
void prove_run_dir(const fs::path& run_dir, const std::string& run, double patience,
                   comm::Communicator& world);

/// The same of the directory of checkpoints, by its marker. Collective.
void prove_checkpoints_dir(const fs::path& dir, const std::string& run, double patience,
                           comm::Communicator& world);

/// Rank 0 misses the run's checkpoints in `dir`. TemporaryError, naming rank 0 and `dir`,
/// where another rank sees the marker of `run`, or any checkpoint where there is no
/// marker: they are not gone. Returns where no rank sees them. Collective.
void confirm_missing(const fs::path& dir, const std::string& run,
                     comm::Communicator& world);

}  // namespace longhaul::checkpoint
