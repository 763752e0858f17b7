#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "longhaul/base/file.h"

namespace longhaul::cluster {

/// What the storage says of a supervisor's lease.
struct LeaseLook {
  bool there = false;     ///< somebody has, or had, the lease
  bool released = false;  ///< he ended in order
  bool alive = false;     ///< his process, or his lease, is
  int number = 0;         ///< of the lease
  std::string host;       ///< the holder's machine and process
  int64_t process = 0;
  int64_t renewed = 0;  ///< changes with each renewal
};

/// Looks at a supervisor's lock from a process of its own: storage that does not answer
/// holds whoever asks. Nothing where no answer came within `limit_seconds`, or the lock
/// cannot be read. Not from a process with other threads.
std::optional<LeaseLook> look_at_lease(const fs::path& lock, double lease_seconds,
                                       double limit_seconds);

}  // namespace longhaul::cluster
