#include "apps/version/version.h"

namespace longhaul::apps {

std::string mpi_version() { return "not built in"; }

}  // namespace longhaul::apps
