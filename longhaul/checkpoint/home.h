#pragma once

#include <optional>
#include <string>

#include "longhaul/comm/communicator.h"
#include "longhaul/run/run_past.h"

namespace longhaul::checkpoint {

// Checks that all ranks see the directories of one run. A mount that one node has lost
// leaves an empty directory, which looks like the directory of a new run. So each rank
// reads on its own machine whose directory it sees (run/run_past.h) and compares that
// with what rank 0 has found. An error names the rank that differs, its node and the
// path. This takes a broadcast, one small read on every rank and one reduction, on any
// number of ranks.

/// Seconds until a name that rank 0 has just made is surely seen on other machines:
/// clients of network file systems remember for up to a minute that the name was absent.
inline constexpr double kNameSeconds = 90.0;

/// Returns, on all ranks, the identity that rank 0's run_dir holds; nothing where no
/// rank's run_dir holds one. Throws TemporaryError where only another rank's run_dir
/// holds an identity. Writes nothing. Collective.
std::optional<std::string> find_run(const fs::path& run_dir, comm::Communicator& world);

/// Throws TemporaryError unless every rank's run_dir belongs to `run`. A rank that sees
/// no identity looks again for `patience` seconds. Collective.
void prove_run_dir(const fs::path& run_dir, const std::string& run, double patience,
                   comm::Communicator& world);

/// Throws TemporaryError unless every rank's directory of checkpoints has the marker of
/// `run`. `patience` is used as in prove_run_dir. Collective.
void prove_checkpoints_dir(const fs::path& dir, const std::string& run, double patience,
                           comm::Communicator& world);

/// Must be called where rank 0 misses the run's checkpoints in `dir`. Throws
/// TemporaryError, naming rank 0 and `dir`, where another rank sees the marker of `run`,
/// or any checkpoint where there is no marker: then the checkpoints are not gone. Returns
/// where no rank sees them. Collective.
void confirm_missing(const fs::path& dir, const std::string& run,
                     comm::Communicator& world);

}  // namespace longhaul::checkpoint
