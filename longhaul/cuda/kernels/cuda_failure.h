#pragma once

namespace longhaul::kernels::cuda {

/// Throws an Error with the name of the kernel, the message of CUDA and what to do.
[[noreturn]] void launch_failed(const char* kernel, const char* message);

}  // namespace longhaul::kernels::cuda
