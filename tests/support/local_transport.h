#pragma once

#include <memory>
#include <vector>

#include "longhaul/comm/transport.h"

namespace longhaul::comm {

/// Transports between `ranks` threads of this process; each is used by one thread. A
/// message is copied when both ends have posted it, straight from memory to memory.
std::vector<std::unique_ptr<Transport>> local_transports(int ranks);

}  // namespace longhaul::comm
