#pragma once

#include "longhaul/base/owner_lock.h"

namespace longhaul::checkpoint {

using RunLockOptions = OwnerLockOptions;

/// One writer at a time for a run directory: run_dir/run.lock. Rank 0 only.
class RunLock : public OwnerLock {
 public:
  /// Makes run_dir where absent. InputError when another process writes the run.
  static RunLock acquire(const fs::path& run_dir, const RunLockOptions& options = {});

 private:
  explicit RunLock(OwnerLock&& lock) : OwnerLock(std::move(lock)) {}
};

}  // namespace longhaul::checkpoint
