#pragma once

#include <functional>
#include <string>
#include <vector>

#include "longhaul/comm/backend.h"

namespace longhaul::apps {

/// Looks for a launcher that starts one process a rank and that MPI knows nothing of
/// (torchrun, accelerate, deepspeed, an operator's pods): each process would be a run of
/// its own. ConfigError with the command to type, where the environment says that this is
/// such a process: TORCHELASTIC_RUN_ID, LOCAL_RANK beside RANK or GROUP_RANK, or RANK
/// above 0. `words`: the command line behind "longhaul". Returns a warning where
/// WORLD_SIZE alone says that there are several, else nothing.
std::string check_launcher(const std::function<const char*(const char*)>& environment,
                           const comm::Launch& launch,
                           const std::vector<std::string>& words);

/// The same for this process; the warning goes to standard error.
void check_launcher();

}  // namespace longhaul::apps
