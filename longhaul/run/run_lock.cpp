#include "longhaul/run/run_lock.h"

#include <cstdlib>
#include <sstream>

#include "longhaul/base/error.h"
#include "longhaul/base/refused.h"
#include "longhaul/run/files.h"

namespace longhaul::run {

RunLockOptions run_lock_options() {
  RunLockOptions options;
  const char* text = std::getenv(kSupervisorVariable);
  if (text == nullptr) return options;
  std::istringstream words(text);
  if (!(words >> options.supervisor >> options.start)) {
    fail_input("run lock",
               "environment variable {}='{}' holds no name and number; unset it, since "
               "longhaul launch and supervise set it themselves",
               kSupervisorVariable, text);
  }
  return options;
}

RunLock RunLock::acquire(const fs::path& run_dir, const RunLockOptions& options) {
  make_setting_directory("run.dir", run_dir);
  return RunLock(system::OwnerLock::acquire(run_dir / kRunLockFile, options));
}

}  // namespace longhaul::run
