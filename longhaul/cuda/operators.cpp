#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>

#include "longhaul/ops/fused_kernels.h"
#include "longhaul/ops/kernels/cuda.h"

namespace longhaul::cuda {
namespace {

struct OnStream {
  template <typename Kernel>
  static void run(const Kernel& kernel, at::Device device) {
    const c10::cuda::CUDAGuard guard(device);
    kernels::cuda::run(kernel, c10::cuda::getCurrentCUDAStream().stream());
  }
};

TORCH_LIBRARY_IMPL(longhaul, CUDA, library) {
  ops::fused::register_kernels<OnStream>(library);
}

}  // namespace
}  // namespace longhaul::cuda
