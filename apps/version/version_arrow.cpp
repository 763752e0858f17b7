#include <arrow/config.h>

#include "apps/version/version.h"

namespace longhaul::apps {

std::string arrow_version() { return arrow::GetBuildInfo().version_string; }

}  // namespace longhaul::apps
