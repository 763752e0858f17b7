#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "longhaul/base/file.h"
#include "longhaul/system/owner_lock.h"

namespace longhaul::cluster {

/// Seconds after which a supervisor on another machine that does not renew it is lost.
inline constexpr double kSupervisorLease = 12.0;

/// Seconds after which a supervisor whose work stands still lets its lease run out: more
/// than its longest wait for nodes and their health checks.
inline constexpr double kSupervisorIdle = 300.0;

/// Takes the lease of a run's supervisor, whose number fences all that it does: nobody
/// acts for a run before. InputError where another supervisor has this run; one of the
/// same job is waited for, and any on another machine until it renews its lease, which
/// says that it lives, or the lease has run out.
OwnerLock take_supervision(const fs::path& run_dir);

/// The same in place of the supervisor whose lease of this number has run out; nothing
/// where somebody has taken it since.
std::optional<OwnerLock> succeed_supervision(const fs::path& run_dir, int number);

/// The step of the newest checkpoint, by its name; absent where there is none.
std::optional<int64_t> newest_checkpoint(const fs::path& dir);

/// What the end without a save of a run costs that was at this step, for people.
std::string describe_left_behind(const fs::path& checkpoint_dir, int64_t step);

}  // namespace longhaul::cluster
