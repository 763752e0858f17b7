#pragma once

#include "longhaul/ops/attention/library_attention.h"

namespace longhaul::ops::library {

// Attention by cuDNN, through LibTorch's operators for it: causal, bf16 or fp16, all
// queries with all keys. On an H200 it takes 0.5 to 0.6 of the time of LibTorch's flash
// kernels (docs/benchmarks.md). cuDNN builds a plan for each size, which takes about as
// long as a step, and adds gradients in no fixed order.

/// Such a call where the device has the operators, unless LibTorch is told to be
/// deterministic. Short sequences and odd lengths, as of prompts, are not worth a plan.
bool takes_cudnn(const at::Tensor& q, const at::Tensor& k, const AttentionMask& mask);

/// As attention_forward and attention_backward, the scores multiplied by `scale`.
/// ConfigError where cuDNN refuses the call.
Attended cudnn_forward(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                       double scale);
AttentionGradients cudnn_backward(const at::Tensor& dout, const at::Tensor& q,
                                  const at::Tensor& k, const at::Tensor& v, double scale,
                                  const Attended& forward);

/// Why the device has no such operators; empty where it has them.
std::string cudnn_obstacle(at::Device device);

}  // namespace longhaul::ops::library
