#pragma once

#include <string>
#include <vector>

namespace longhaul::apps {

struct LibraryVersion {
  std::string name;
  std::string version;
};

/// Returns every library the program is made of, with the version that is really loaded
/// if the library can say it, else the version of the headers it was compiled with.
std::vector<LibraryVersion> library_versions();

/// Returns what `longhaul --version` prints: version, commit and compiler, then one line
/// per library.
std::string version_text();

// Each function exists twice: in a file for builds with the library, and in one for
// builds without it. CMake links one of the two.
std::string mpi_version();
std::string arrow_version();

}  // namespace longhaul::apps
