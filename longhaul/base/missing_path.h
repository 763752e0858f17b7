#pragma once

#include <string>

#include "longhaul/base/file.h"

namespace longhaul {

/// Explains a path in which a shell would have replaced something ("~", "~user", "$NAME"
/// or "${NAME}") and no file or directory is really named so. The text says that the path
/// is taken as it stands, and what the shell would have made of it. It is empty for any
/// other path.
std::string unexpanded(const fs::path& path);

/// Explains a path that reads like an address ("gs://bucket/run"), if nothing here has
/// the name with which the path begins. The text says that addresses of this kind are not
/// opened. For the address of an object (s3://), whatever is there, the text says that it
/// has no use here. The text is empty for any other path.
std::string as_address(const fs::path& path);

/// Returns "PATH: no such file or directory", and what may be meant: what a shell would
/// have made of it, or a neighbour whose name is nearly that. If the path reads like an
/// address or like a name on a model hub ("meta-llama/Llama-3.2-1B"), it says that
/// nothing is fetched. If the path is a link to nothing, the text says so.
std::string missing_path(const fs::path& path);

/// Returns "a link to TARGET, where nothing is" if the path is such a link, else nothing.
std::string dangling_link(const fs::path& path);

}  // namespace longhaul
