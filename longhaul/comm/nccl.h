#pragma once

#include <memory>

#include "longhaul/comm/device_api.h"

namespace longhaul::comm {

/// False in a build without NCCL.
bool nccl_is_built();

/// NCCL and the CUDA runtime, for groups of CUDA devices. ConfigError in a build without
/// NCCL or where its library cannot be loaded.
///
/// State: it has never run on several GPUs; what uses it is tested over fakes.
///
/// What differs from the groups of host memory: sums are added by NCCL in an order of its
/// own: repeatable with the same ranks on the same machines, but not bitwise the same on
/// another topology, and bf16 is rounded on the way. Max need not keep NaN.
std::shared_ptr<DeviceApi> nccl();

}  // namespace longhaul::comm
