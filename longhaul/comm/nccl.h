#pragma once

#include <memory>

#include "longhaul/comm/communicator.h"

namespace longhaul::comm {

/// False in a build without NCCL.
bool nccl_is_built();

/// A group of the same ranks as `bootstrap` whose buffers are memory of CUDA device
/// `device`. ConfigError in a build without NCCL. Collective.
std::unique_ptr<Communicator> nccl_group(Communicator& bootstrap, int device);

}  // namespace longhaul::comm
