#pragma once

#include <memory>
#include <string>

#include "longhaul/comm/transport.h"

namespace longhaul::comm {

/// mpi.cpp, or no_mpi.cpp in a build without MPI.
bool mpi_is_built();
/// A duplicate of MPI_COMM_WORLD; starts MPI at the first call. Collective.
std::unique_ptr<Transport> mpi_world_transport();
/// MPI_Finalize if MPI was started and not ended. Collective.
void mpi_finish();
std::string mpi_library_version();

}  // namespace longhaul::comm
