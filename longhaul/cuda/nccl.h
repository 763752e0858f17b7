#pragma once

#include <memory>

#include "longhaul/comm/device_api.h"

namespace longhaul::cuda {

/// NCCL and the CUDA runtime, for groups of CUDA devices. ConfigError where NCCL's
/// library cannot be loaded.
///
/// State: it has run with one rank, never on several GPUs; what uses it is tested over
/// fakes.
///
/// What differs from the groups of host memory: sums are added by NCCL in an order of its
/// own: repeatable with the same ranks on the same machines, but not bitwise the same on
/// another topology, and bf16 is rounded on the way. Max need not keep NaN.
std::shared_ptr<comm::DeviceApi> nccl();

}  // namespace longhaul::cuda
