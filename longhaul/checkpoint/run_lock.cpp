#include "longhaul/checkpoint/run_lock.h"

#include <utility>

namespace longhaul::checkpoint {

RunLock RunLock::acquire(const fs::path& run_dir, const RunLockOptions& options) {
  return RunLock(OwnerLock::acquire(run_dir / "run.lock", options));
}

}  // namespace longhaul::checkpoint
