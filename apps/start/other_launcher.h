#pragma once

#include <functional>
#include <string>
#include <vector>

#include "longhaul/comm/backend.h"

namespace longhaul::apps {

/// Looks for a launcher that starts one process per rank without MPI (torchrun,
/// accelerate, deepspeed, an operator's pods): each process would be a run of its own.
/// Throws ConfigError, with the command to type, if the environment shows such a
/// process: TORCHELASTIC_RUN_ID, LOCAL_RANK beside RANK or GROUP_RANK, or RANK above 0.
/// `words`: the command line behind "longhaul". Returns a warning if WORLD_SIZE alone
/// names several ranks, else "".
std::string check_launcher(const std::function<const char*(const char*)>& environment,
                           const comm::Launch& launch,
                           const std::vector<std::string>& words);

/// Looks at this process's environment and prints the warning to standard error.
void check_launcher();

}  // namespace longhaul::apps
