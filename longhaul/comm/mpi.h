#pragma once

#include <memory>

#include "longhaul/comm/transport.h"

namespace longhaul::comm {

// The functions are defined by mpi.cpp, or by no_mpi.cpp in a build without MPI.

/// Returns a duplicate of MPI_COMM_WORLD. The first call starts MPI. Throws ConfigError
/// in a build without MPI. Collective.
std::unique_ptr<Transport> mpi_world_transport();
/// Calls MPI_Finalize if MPI was started and has not ended. Collective.
void mpi_finish();

}  // namespace longhaul::comm
