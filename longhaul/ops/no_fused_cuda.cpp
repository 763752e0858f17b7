#include "longhaul/base/error.h"
#include "longhaul/ops/fused_cuda.h"
#include "longhaul/ops/kernels/cpu.h"

namespace longhaul::ops::fused::cuda {

bool supports(const at::Tensor&) { return false; }

std::string device_name(at::Device device) { return device.str(); }

template <typename Kernel>
void run(const Kernel&, at::Device) {
  throw Error(ErrorKind::Internal, "cuda",
              "a CUDA kernel was called in a program built without CUDA");
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
