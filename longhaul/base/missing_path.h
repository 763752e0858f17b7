#pragma once

#include <string>

#include "longhaul/base/file.h"

namespace longhaul {

/// For a path in which a shell would have replaced something, "~", "~user", "$NAME" or
/// "${NAME}", and no file or directory is really named so: that it is taken as it stands,
/// and what the shell would have made of it. Else empty.
std::string unexpanded(const fs::path& path);

/// "PATH: no such file or directory", and what may be meant: what a shell would have made
/// of it, a neighbour whose name is nearly the same, or, where the path reads like an
/// address or like a model's or data set's name on a hub ("meta-llama/Llama-3.2-1B"),
/// that nothing is fetched. A link to nothing is called that.
std::string missing_path(const fs::path& path);

/// "a link to TARGET, where nothing is" where that is so, else nothing.
std::string dangling_link(const fs::path& path);

}  // namespace longhaul
