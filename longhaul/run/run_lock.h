#pragma once

#include "longhaul/system/owner_lock.h"

namespace longhaul {

using RunLockOptions = OwnerLockOptions;

/// What a supervisor sets for its workers: "NAME START", see
/// OwnerLockOptions::supervisor.
inline constexpr const char* kSupervisorVariable = "LONGHAUL_SUPERVISOR";
/// With the supervisor that the environment names, if one does. InputError.
RunLockOptions run_lock_options();

/// One writer at a time for a run directory: run_dir/run.lock. Rank 0 only.
class RunLock : public OwnerLock {
 public:
  /// Makes run_dir where absent. InputError when another process writes the run.
  static RunLock acquire(const fs::path& run_dir,
                         const RunLockOptions& options = run_lock_options());

 private:
  explicit RunLock(OwnerLock&& lock) : OwnerLock(std::move(lock)) {}
};

}  // namespace longhaul
