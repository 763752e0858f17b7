#pragma once

#include <string>

#include "longhaul/base/file.h"

namespace longhaul {

/// "PATH: no such file or directory", and what may be meant: a neighbour whose name is
/// nearly the same, or, where the path reads like an address or like a model's or data
/// set's name on a hub ("meta-llama/Llama-3.2-1B"), that nothing is fetched. A link to
/// nothing is called that.
std::string missing_path(const fs::path& path);

/// "a link to TARGET, where nothing is" where that is so, else nothing.
std::string dangling_link(const fs::path& path);

}  // namespace longhaul
