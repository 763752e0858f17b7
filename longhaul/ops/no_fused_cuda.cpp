#include "longhaul/base/error.h"
#include "longhaul/ops/fused_cuda.h"
#include "longhaul/ops/kernels/cuda.h"

namespace longhaul::ops::fused::cuda {

bool supports(const at::Tensor&) { return false; }

std::string device_name(at::Device device) { return device.str(); }

void check_device(at::Device) {}

template <typename Kernel>
void run(const Kernel&, at::Device) {
  throw Error(ErrorKind::Internal, "cuda",
              "a CUDA kernel was called in a program built without CUDA");
}

LH_CUDA_KERNELS(float);
LH_CUDA_KERNELS(kernels::Bf16);

}  // namespace longhaul::ops::fused::cuda
