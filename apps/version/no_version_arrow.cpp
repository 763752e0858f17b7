#include "apps/version/version.h"

namespace longhaul::apps {

std::string arrow_version() { return "not built in"; }

}  // namespace longhaul::apps
