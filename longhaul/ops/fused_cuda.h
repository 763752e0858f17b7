#pragma once

#include <ATen/core/Tensor.h>

#include <string>

namespace longhaul::ops::fused::cuda {

// fused.h for tensors on a GPU: the same contracts, on the device's current stream.
// fused_cuda.cpp has the kernels; no_fused_cuda.cpp stands in without CUDA and supports
// nothing, so that the composite forms serve.

bool supports(const at::Tensor& x);

/// "NVIDIA H100 80GB HBM3 sm_90".
std::string device_name(at::Device device);

void rms_norm_forward(const at::Tensor& x, const at::Tensor& weight, double eps,
                      at::Tensor& y, at::Tensor& inverse_rms);
void rms_norm_backward(const at::Tensor& dy, const at::Tensor& x,
                       const at::Tensor& inverse_rms, const at::Tensor& weight,
                       at::Tensor& dx, const at::Tensor& dweight);
void rope(const at::Tensor& x, const at::Tensor& cos, const at::Tensor& sin,
          const at::Tensor& positions, bool inverse, at::Tensor& y);
void swiglu_forward(const at::Tensor& gate, const at::Tensor& up, at::Tensor& y);
void swiglu_backward(const at::Tensor& dy, const at::Tensor& gate, const at::Tensor& up,
                     at::Tensor& dgate, at::Tensor& dup);
void cross_entropy(at::Tensor& logits, const at::Tensor& targets, double scale,
                   double z_loss, bool want_gradient, at::Tensor& cross_entropy,
                   at::Tensor& squared_lse);

}  // namespace longhaul::ops::fused::cuda
