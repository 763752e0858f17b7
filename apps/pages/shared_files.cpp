#include "apps/pages/shared_files.h"

#include <fmt/format.h>

#include <string>

#include "longhaul/base/error.h"
#include "longhaul/base/process.h"

namespace longhaul::apps {

fs::path shared_files(const std::string& name, const std::string& area) {
  const fs::path binary = this_program();
  fs::path installed = binary.parent_path().parent_path() / "share" / "longhaul" / name;
  if (fs::is_directory(installed)) return installed;
  for (fs::path dir = binary.parent_path(); dir.has_relative_path();
       dir = dir.parent_path()) {
    if (fs::is_directory(dir / name) && fs::is_directory(dir / "longhaul" / "config")) {
      return dir / name;
    }
  }
  throw InputError(area, fmt::format("no {} found: neither {} nor a source tree around "
                                     "{}; install with `make install` or the wheel",
                                     name, installed.string(), binary.string()));
}

}  // namespace longhaul::apps
