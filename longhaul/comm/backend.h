#pragma once

#include <functional>
#include <memory>
#include <string>

#include "longhaul/comm/communicator.h"
#include "longhaul/comm/options.h"

namespace longhaul::comm {

enum class Backend {
  Auto,  ///< Mpi where a launcher started several ranks, else Self
  Self,  ///< one process
  Mpi,
};

/// How this process was started: what the environment variables of mpirun
/// (OMPI_COMM_WORLD_*), PMIx (PMIX_RANK), PMI (PMI_RANK, PMI_SIZE) and Slurm's steps say.
struct Launch {
  bool by_launcher = false;
  bool by_mpirun = false;
  int ranks = 0;       ///< 0: the number is not known before MPI_Init
  int local_rank = 0;  ///< this rank's place among the ranks of its machine
  int local_ranks = 1;
  /// Returns whether there is more than one rank, or may be, since the number is not
  /// known yet.
  bool several() const { return by_launcher && ranks != 1; }
};
/// Reads `environment`, by default the process's own. Throws ConfigError in a Slurm step
/// of several tasks without PMIx: each task would be a run of its own, and the runs would
/// overwrite each other's files.
Launch detect_launch(const std::function<const char*(const char*)>& environment);
Launch detect_launch();

/// Returns the group of all ranks. Auto never calls MPI_Init in a process that was
/// started alone, which saves a tenth of a second. Throws ConfigError if the build has no
/// MPI. Collective with MPI. From here on the calling thread owns MPI.
std::shared_ptr<Communicator> world(Backend backend = Backend::Auto,
                                    const CommOptions& options = {});

/// Returns a group of this rank alone, which sends no messages.
std::shared_ptr<Communicator> self_world(std::string name = "world",
                                         const CommOptions& options = {});

/// Ends a successful program: waits in a barrier, then calls MPI_Finalize if MPI was
/// started. After a failure call Communicator::abort instead. Collective.
void finish(Communicator& world);

/// Describes who adds up sums over the ranks and in which order, for the numerics
/// fingerprint. The MPI library does not appear: it carries messages and adds nothing up.
std::string describe_sums(const Communicator& world);

}  // namespace longhaul::comm
