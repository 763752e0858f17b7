#include "longhaul/ops/fused_cuda.h"

#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include "longhaul/ops/kernels/cuda.h"

namespace longhaul::ops::fused::cuda {
bool supports(const at::Tensor& x) {
  return x.is_cuda() &&
         (x.scalar_type() == at::kFloat || x.scalar_type() == at::kBFloat16);
}

std::string device_name(at::Device device) {
  cudaDeviceProp properties;
  if (cudaGetDeviceProperties(&properties, device.index()) != cudaSuccess) {
    return device.str();
  }
  return fmt::format("{} sm_{}{}", properties.name, properties.major, properties.minor);
}

template <typename Kernel>
void run(const Kernel& kernel, at::Device device) {
  const c10::cuda::CUDAGuard guard(device);
  kernels::cuda::run(kernel, c10::cuda::getCurrentCUDAStream().stream());
}

#define LH_INSTANTIATE(T)                                            \
  template void run(const kernels::RmsNormForward<T>&, at::Device);  \
  template void run(const kernels::RmsNormBackward<T>&, at::Device); \
  template void run(const kernels::Rope<T>&, at::Device);            \
  template void run(const kernels::SwigluForward<T>&, at::Device);   \
  template void run(const kernels::SwigluBackward<T>&, at::Device);  \
  template void run(const kernels::CrossEntropy<T>&, at::Device)

LH_INSTANTIATE(float);
LH_INSTANTIATE(kernels::Bf16);
#undef LH_INSTANTIATE

}  // namespace longhaul::ops::fused::cuda
