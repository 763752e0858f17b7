#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "longhaul/base/file.h"

namespace longhaul::cluster {

/// What the storage says of a supervisor's lease. Agents decide by this.
struct LeaseLook {
  bool there = false;     ///< a supervisor has, or had, the lease
  bool released = false;  ///< that supervisor ended in order
  bool alive = false;     ///< its process lives, or its lease has not run out
  int number = 0;         ///< number of the lease
  std::string host;       ///< the holder's machine and process
  int64_t process = 0;
  int64_t renewed = 0;  ///< a value that changes with each renewal
};

/// Looks at a supervisor's lock from a child process, because storage that does not
/// answer blocks whoever reads it. Returns nothing if no answer came within
/// `limit_seconds` or the lock cannot be read. The calling process must have no other
/// thread.
std::optional<LeaseLook> look_at_lease(const fs::path& lock, double lease_seconds,
                                       double limit_seconds);

}  // namespace longhaul::cluster
