#include "apps/version.h"

namespace longhaul::apps {

std::string hdf5_version() { return "not built in"; }

}  // namespace longhaul::apps
