#include <fmt/format.h>
#include <hdf5.h>

#include "apps/version.h"

namespace longhaul::apps {

std::string hdf5_version() {
  unsigned major = 0;
  unsigned minor = 0;
  unsigned release = 0;
  H5get_libversion(&major, &minor, &release);
  return fmt::format("{}.{}.{}", major, minor, release);
}

}  // namespace longhaul::apps
