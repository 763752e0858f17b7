#pragma once

#include "longhaul/ops/attention/library_attention.h"

namespace longhaul::ops::library {

// cuDNN computes attention through LibTorch's operators for it: causal, bf16 or fp16, all
// queries with all keys. On an H200 it takes 0.5 to 0.6 of the time of LibTorch's flash
// kernels (docs/benchmarks.md). For each size cuDNN builds a plan, which takes about as
// long as a step. It adds gradients in no fixed order.

/// Returns whether cuDNN takes such a call: if the device has the operators and LibTorch
/// is not told to be deterministic. Short sequences and odd lengths, as prompts have, are
/// not worth a plan.
bool takes_cudnn(const at::Tensor& q, const at::Tensor& k, const AttentionMask& mask);

/// Does the same as attention_forward. `scale` is the factor of the scores. Throws
/// ConfigError where cuDNN refuses the call.
Attended cudnn_forward(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                       double scale);
/// Does the same as attention_backward. Throws ConfigError where cuDNN refuses the call.
AttentionGradients cudnn_backward(const at::Tensor& dout, const at::Tensor& q,
                                  const at::Tensor& k, const at::Tensor& v, double scale,
                                  const Attended& forward);

/// Returns why the device lacks the operators; empty if it has them.
std::string cudnn_obstacle(at::Device device);

}  // namespace longhaul::ops::library
