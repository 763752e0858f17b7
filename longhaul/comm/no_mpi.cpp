#include "longhaul/base/error.h"
#include "longhaul/comm/mpi.h"

namespace longhaul::comm {

bool mpi_is_built() { return false; }

std::unique_ptr<Transport> mpi_world_transport() {
  throw ConfigError("comm",
                    "this build has no MPI and runs as one process only; build with "
                    "LONGHAUL_MPI=ON for several ranks");
}

void mpi_finish() {}

std::string mpi_library_version() { return "none"; }

}  // namespace longhaul::comm
