#pragma once

#include <string>

namespace longhaul {

/// What this program was built from. Link longhaul::build_info to use it.
struct BuildInfo {
  std::string version;  ///< "0.1.0"
  std::string commit;  ///< 12 hex digits, with "-dirty" when files differed; or "unknown"
  std::string compiler;    ///< "GNU 12.2.0"
  std::string build_type;  ///< "Release"

  /// Returns "0.1.0 (3f2a51c09d11, GNU 12.2.0, Release)": a manifest names the build that
  /// wrote it in this form.
  std::string one_line() const;
};

const BuildInfo& build_info();

}  // namespace longhaul
