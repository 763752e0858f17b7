#pragma once

#include <c10/core/Device.h>

#include <string>

namespace longhaul::ops::fused::cuda {

// What a GPU has beside the operators of fused.h. fused_cuda.cpp has them;
// no_fused_cuda.cpp stands in without CUDA, so that the composite forms serve.

/// "NVIDIA H100 80GB HBM3 sm_90".
std::string device_name(at::Device device);

/// ConfigError where the kernels of this program cannot run on this GPU: none was
/// compiled for its architecture, or its driver is older than the program's CUDA. To be
/// called before the first of them; nothing to check on another device.
void check_device(at::Device device);

}  // namespace longhaul::ops::fused::cuda
