#pragma once

#include <cstdint>

namespace longhaul {

/// Returns when a process was started, in clock ticks since the machine was; 0 where
/// there is no such process. A process that is dead counts as none, although its parent
/// has not noticed yet: in a container whose first process reaps nobody, it never will.
int64_t process_start(int64_t process);

}  // namespace longhaul
