#include "apps/version.h"

namespace longhaul::apps {

std::string cuda_version() { return "not built in"; }

}  // namespace longhaul::apps
