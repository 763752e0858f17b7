#include <mpi.h>

#include "apps/version/version.h"

namespace longhaul::apps {

std::string mpi_version() {
  // The call is allowed before MPI_Init. Its text is "Open MPI v4.1.4, package: ...,
  // ident: ...", which begins with the version.
  char text[MPI_MAX_LIBRARY_VERSION_STRING] = "";
  int length = 0;
  MPI_Get_library_version(text, &length);
  const std::string all(text);
  return all.substr(0, all.find_first_of(",\n"));
}

}  // namespace longhaul::apps
