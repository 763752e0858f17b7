#include "longhaul/base/build_info.h"

#include "longhaul_commit.h"

namespace longhaul {

std::string BuildInfo::one_line() const {
  return version + " (" + commit + ", " + compiler + ", " + build_type + ")";
}

const BuildInfo& build_info() {
  static const BuildInfo info{LONGHAUL_VERSION, LONGHAUL_COMMIT, LONGHAUL_COMPILER,
                              LONGHAUL_BUILD_TYPE};
  return info;
}

}  // namespace longhaul
