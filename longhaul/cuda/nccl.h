#pragma once

#include <memory>

#include "longhaul/comm/device_api.h"

namespace longhaul::cuda {

/// Returns NCCL and the CUDA runtime, for groups of CUDA devices. Throws ConfigError if
/// the library of NCCL cannot be loaded.
///
/// This API has been run with one rank, never on several GPUs. The code that uses it is
/// tested with fakes.
///
/// Groups of devices differ from groups of host memory. NCCL adds sums in an order of its
/// own: the bits repeat with the same ranks on the same machines, but differ on another
/// topology. NCCL rounds bf16 on the way, and a maximum need not keep NaN.
std::shared_ptr<comm::DeviceApi> nccl();

}  // namespace longhaul::cuda
