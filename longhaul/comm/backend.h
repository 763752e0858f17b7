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

/// How this process was started, read from the environment variables of mpirun
/// (OMPI_COMM_WORLD_*), PMIx (PMIX_RANK), PMI (PMI_RANK, PMI_SIZE) and Slurm's steps.
struct Launch {
  bool by_launcher = false;
  bool by_mpirun = false;
  int ranks = 0;       ///< 0: not known before MPI_Init
  int local_rank = 0;  ///< among the ranks of this machine
  int local_ranks = 1;
  /// More than one rank, or not known to be one.
  bool several() const { return by_launcher && ranks != 1; }
};
/// A Slurm step of several tasks without PMIx would be so many runs of one rank that
/// overwrite each other's files: ConfigError.
Launch detect_launch(const std::function<const char*(const char*)>& environment);
Launch detect_launch();

/// The group of all ranks. Auto never calls MPI_Init in a process that was started
/// alone, which saves a tenth of a second. ConfigError where the build has no MPI.
/// Collective (MPI). The calling thread owns MPI from here on.
std::shared_ptr<Communicator> world(Backend backend = Backend::Auto,
                                    const CommOptions& options = {});

/// One rank that talks to nobody.
std::shared_ptr<Communicator> self_world(std::string name = "world",
                                         const CommOptions& options = {});

/// Ends a successful program: a barrier, then MPI_Finalize where MPI was started. After
/// a failure call Communicator::abort instead. Collective.
void finish(Communicator& world);

/// Whose sums over the ranks these are, and in which order they are added: for the
/// numerics fingerprint. Sums of this folder's own do not depend on the MPI below them.
std::string describe_sums(const Communicator& world);

/// "Open MPI v4.1.4, ..." or "none".
std::string mpi_version();

}  // namespace longhaul::comm
