#pragma once

#include <ATen/core/Tensor.h>

#include <string>

namespace longhaul::ops::fused::cuda {

// The kernels of fused.h on a GPU. fused_cuda.cpp has them; no_fused_cuda.cpp stands in
// without CUDA and supports nothing, so that the composite forms serve.

bool supports(const at::Tensor& x);

/// "NVIDIA H100 80GB HBM3 sm_90".
std::string device_name(at::Device device);

/// ConfigError where the kernels of this program cannot run on this GPU: none was
/// compiled for its architecture, or its driver is older than the program's CUDA. To be
/// called before the first of them; nothing to check on another device.
void check_device(at::Device device);

/// Runs one of the kernels in kernels/cuda.h on the device's current stream.
template <typename Kernel>
void run(const Kernel& kernel, at::Device device);

/// Those that there are, for an element type: what each of the two files instantiates.
#define LH_CUDA_KERNELS(T)                                                  \
  template void run(const kernels::RmsNormForward<T>&, at::Device);         \
  template void run(const kernels::RmsNormBackward<T>&, at::Device);        \
  template void run(const kernels::Rope<T>&, at::Device);                   \
  template void run(const kernels::SwigluForward<T>&, at::Device);          \
  template void run(const kernels::SwigluBackward<T>&, at::Device);         \
  template void run(const kernels::CrossEntropy<T>&, at::Device);           \
  template void run(const kernels::CrossEntropyStatistics<T>&, at::Device); \
  template void run(const kernels::CrossEntropyGradient<T>&, at::Device);   \
  template void run(const kernels::cuda::EmbeddingGradient<T>&, at::Device)

}  // namespace longhaul::ops::fused::cuda
