#include "longhaul/ops/fused_cuda.h"

#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include "longhaul/ops/kernels/cuda.h"

namespace longhaul::ops::fused::cuda {
namespace {

namespace kernel = kernels::cuda;
using kernels::Bf16;

/// Memory of a tensor as the kernels' element type; null for an undefined one.
template <typename T>
T* pointer(const at::Tensor& x) {
  return x.defined() ? static_cast<T*>(x.data_ptr()) : nullptr;
}

/// Calls `run(value of the element type, stream)` with the tensor's device as current.
template <typename Run>
void launch(const at::Tensor& x, const Run& run) {
  const c10::cuda::CUDAGuard guard(x.device());
  const kernel::Stream stream = c10::cuda::getCurrentCUDAStream().stream();
  if (x.scalar_type() == at::kFloat) {
    run(float{}, stream);
  } else {
    run(Bf16{}, stream);
  }
}

}  // namespace

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

void rms_norm_forward(const at::Tensor& x, const at::Tensor& weight, double eps,
                      at::Tensor& y, at::Tensor& inverse_rms) {
  launch(x, [&](auto type, kernel::Stream stream) {
    using T = decltype(type);
    kernel::rms_norm_forward<T>(pointer<T>(x), nullptr, pointer<T>(weight), eps,
                                x.size(0), x.size(1), nullptr, pointer<T>(y),
                                pointer<float>(inverse_rms), stream);
  });
}

void rms_norm_backward(const at::Tensor& dy, const at::Tensor& x,
                       const at::Tensor& inverse_rms, const at::Tensor& weight,
                       at::Tensor& dx, const at::Tensor& dweight) {
  launch(x, [&](auto type, kernel::Stream stream) {
    using T = decltype(type);
    kernel::rms_norm_backward<T>(
        pointer<T>(dy), pointer<T>(x), pointer<float>(inverse_rms), pointer<T>(weight),
        nullptr, x.size(0), x.size(1), pointer<T>(dx), pointer<float>(dweight), stream);
  });
}

void rope(const at::Tensor& x, const at::Tensor& cos, const at::Tensor& sin,
          const at::Tensor& positions, bool inverse, at::Tensor& y) {
  launch(x, [&](auto type, kernel::Stream stream) {
    using T = decltype(type);
    kernel::rope<T>(pointer<T>(x), x.stride(0), x.stride(1),
                    {x.size(0), x.size(1), x.size(2)}, pointer<float>(cos),
                    pointer<float>(sin), pointer<int32_t>(positions), inverse,
                    pointer<T>(y), y.stride(0), y.stride(1), stream);
  });
}

void swiglu_forward(const at::Tensor& gate, const at::Tensor& up, at::Tensor& y) {
  launch(gate, [&](auto type, kernel::Stream stream) {
    using T = decltype(type);
    kernel::swiglu_forward<T>(pointer<T>(gate), pointer<T>(up), gate.stride(0),
                              gate.size(0), gate.size(1), pointer<T>(y), stream);
  });
}

void swiglu_backward(const at::Tensor& dy, const at::Tensor& gate, const at::Tensor& up,
                     at::Tensor& dgate, at::Tensor& dup) {
  launch(gate, [&](auto type, kernel::Stream stream) {
    using T = decltype(type);
    kernel::swiglu_backward<T>(
        pointer<T>(dy), pointer<T>(gate), pointer<T>(up), gate.stride(0), gate.size(0),
        gate.size(1), pointer<T>(dgate), pointer<T>(dup), dgate.stride(0), stream);
  });
}

void cross_entropy(at::Tensor& logits, const at::Tensor& targets, double scale,
                   double z_loss, bool want_gradient, at::Tensor& cross_entropy,
                   at::Tensor& squared_lse) {
  launch(logits, [&](auto type, kernel::Stream stream) {
    using T = decltype(type);
    kernel::cross_entropy<T>(pointer<T>(logits), pointer<int64_t>(targets),
                             logits.size(0), logits.size(1), scale, z_loss, want_gradient,
                             pointer<float>(cross_entropy), pointer<float>(squared_lse),
                             stream);
  });
}

}  // namespace longhaul::ops::fused::cuda
