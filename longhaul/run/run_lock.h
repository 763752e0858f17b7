#pragma once

#include "longhaul/system/owner_lock.h"

namespace longhaul::run {

using RunLockOptions = system::OwnerLockOptions;

/// The environment variable that a supervisor sets for its workers: "NAME START", see
/// OwnerLockOptions::supervisor.
inline constexpr const char* kSupervisorVariable = "LONGHAUL_SUPERVISOR";
/// The environment variable by which a supervisor tells its workers which run they must
/// find: the identity of the run, if it is known.
inline constexpr const char* kRunToFindVariable = "LONGHAUL_RUN";
/// Returns options with the supervisor that the environment names, if it names one.
/// Throws InputError if the variable is no name and number.
RunLockOptions run_lock_options();

/// Lets one process at a time write to a run directory, by run_dir/run.lock. Only rank 0
/// takes it.
class RunLock : public system::OwnerLock {
 public:
  /// Takes the lock; makes run_dir if absent. Throws InputError when another process
  /// writes the run.
  static RunLock acquire(const fs::path& run_dir,
                         const RunLockOptions& options = run_lock_options());

 private:
  explicit RunLock(system::OwnerLock&& lock) : system::OwnerLock(std::move(lock)) {}
};

}  // namespace longhaul::run
