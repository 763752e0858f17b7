#include "longhaul/ops/fused_cuda.h"

#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include "longhaul/ops/fused_kernels.h"
#include "longhaul/ops/kernels/cuda.h"
#include "longhaul/ops/kernels/cuda/gpu.h"

namespace longhaul::ops::fused::cuda {

std::string device_name(at::Device device) {
  if (!device.is_cuda()) return device.is_cpu() ? "cpu" : device.str();
  cudaDeviceProp properties;
  if (cudaGetDeviceProperties(&properties, device.index()) != cudaSuccess) {
    return device.str();
  }
  return fmt::format("{} sm_{}{}", properties.name, properties.major, properties.minor);
}

void check_device(at::Device device) {
  if (!device.is_cuda()) return;
  kernels::cuda::Gpu gpu{device.str()};
  cudaDriverGetVersion(&gpu.driver_version);
  cudaRuntimeGetVersion(&gpu.runtime_version);
  cudaDeviceProp properties;
  if (cudaGetDeviceProperties(&properties, device.index()) == cudaSuccess) {
    gpu.name = properties.name;
    gpu.major = properties.major;
    gpu.minor = properties.minor;
  }
  kernels::cuda::check_gpu(gpu, kernels::cuda::built_images());
}

struct OnStream {
  template <typename Kernel>
  static void run(const Kernel& kernel, at::Device device) {
    const c10::cuda::CUDAGuard guard(device);
    kernels::cuda::run(kernel, c10::cuda::getCurrentCUDAStream().stream());
  }
};

TORCH_LIBRARY_IMPL(longhaul, CUDA, library) { register_kernels<OnStream>(library); }

}  // namespace longhaul::ops::fused::cuda
