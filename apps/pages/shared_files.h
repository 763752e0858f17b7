#pragma once

#include <string>

#include "longhaul/base/file.h"

namespace longhaul::apps {

/// Returns the directory of files that come with the program (`name` is "recipes" or
/// "docs"): share/longhaul/NAME beside an installed program, else NAME in the source tree
/// that the program was built in. Throws InputError of `area` where neither is there.
fs::path shared_files(const std::string& name, const std::string& area);

}  // namespace longhaul::apps
