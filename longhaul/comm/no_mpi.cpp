#include "longhaul/base/error.h"
#include "longhaul/comm/mpi.h"

namespace longhaul::comm {

std::unique_ptr<Transport> mpi_world_transport() {
  fail_config("comm",
              "this build has no MPI and runs as one process only; build with "
              "LONGHAUL_MPI=ON for several ranks");
}

void mpi_finish() {}

}  // namespace longhaul::comm
