#pragma once

namespace longhaul::kernels::cuda {

/// Throws Error: the kernel's name, what CUDA said, what to do.
[[noreturn]] void launch_failed(const char* kernel, const char* message);

}  // namespace longhaul::kernels::cuda
