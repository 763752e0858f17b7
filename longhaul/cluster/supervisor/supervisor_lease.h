#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "longhaul/base/file.h"
#include "longhaul/system/owner_lock.h"

namespace longhaul::cluster {

/// Seconds without a renewal of its lease after which a supervisor on another machine
/// counts as lost.
inline constexpr double kSupervisorLease = 12.0;

/// Seconds after which a supervisor whose work stands still lets its lease run out. This
/// is longer than the supervisor's longest wait for nodes and their health checks.
inline constexpr double kSupervisorIdle = 300.0;

/// Takes the lease of a run's supervisor, before anything is done for the run: the number
/// of the lease fences all that its holder does. Waits for another supervisor of the same
/// job; waits for a supervisor on another machine until it renews its lease or the lease
/// has run out. Throws InputError if another supervisor lives and has this run.
system::OwnerLock take_supervision(const fs::path& run_dir);

/// Takes the lease in place of the supervisor whose lease of this number has run out.
/// Returns nothing if another supervisor has taken the lease since. Also returns nothing
/// if this node sees no lease: it must not begin a run in an empty directory.
std::optional<system::OwnerLock> succeed_supervision(const fs::path& run_dir, int number);

/// Returns the step of the newest checkpoint in a directory of checkpoints; nothing if
/// there is none. A checkpoint that another run than that of the directory's marker has
/// saved does not count.
std::optional<int64_t> newest_checkpoint(const fs::path& dir);

/// Says for people what is lost when a run at this step ends without a save.
std::string describe_left_behind(const fs::path& checkpoint_dir, int64_t step);

}  // namespace longhaul::cluster
