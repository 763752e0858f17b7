#pragma once

#include <memory>
#include <vector>

#include "longhaul/comm/transport.h"

namespace longhaul::comm {

/// Returns transports between `ranks` threads of this process, one for each thread. A
/// message is copied straight from memory to memory when both ends have posted it.
std::vector<std::unique_ptr<Transport>> local_transports(int ranks);

}  // namespace longhaul::comm
