#pragma once

#include <ATen/core/Tensor.h>

#include <string>

#include "longhaul/ops/attention/attention.h"

namespace longhaul::ops::library {

// Attention through LibTorch's own flash kernels (Dao, "FlashAttention-2") on devices
// that have these kernels, or through the kernels of cuDNN for the calls that cuDNN takes
// (cudnn_attention.h). The kernels take bf16 and fp16, head dims that are multiples of 8
// up to 256, and grouped heads without copies of keys and values. The composite form does
// what these kernels cannot do: dropout, documents whose bounds the host does not know,
// and other ends of documents.

/// Returns whether the kernels take all keys at once, of which the last belong to the
/// queries.
bool supports_attention(const at::Tensor& q, const at::Tensor& k,
                        const AttentionMask& mask);
/// Returns whether the kernels take a part of the keys; documents are not taken.
bool supports_attention_part(const AttentionPart& part);
/// Returns what computes attention on this device, or why these kernels do not compute
/// it, for the log and the numerics fingerprint.
std::string describe_attention(at::ScalarType type, at::Device device);

/// The results of a forward that its backward needs: the log-sum-exp, whose shape depends
/// on the kernel, and two tensors of random state.
struct Attended {
  at::Tensor out;  ///< contiguous, with the shape and dtype of q
  at::Tensor lse, rng, unused;
};
Attended attention_forward(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                           const AttentionMask& mask);

struct AttentionGradients {
  at::Tensor dq, dk, dv;
};
AttentionGradients attention_backward(const at::Tensor& dout, const at::Tensor& q,
                                      const at::Tensor& k, const at::Tensor& v,
                                      const AttentionMask& mask, const Attended& forward);

/// Does the same as ops::attention_part_forward.
void attention_part_forward(const AttentionPart& part, at::Tensor& out, at::Tensor& lse);
/// Does the same as ops::attention_part_backward.
void attention_part_backward(const AttentionPart& part, const at::Tensor& dout,
                             const at::Tensor& out, const at::Tensor& lse, at::Tensor& dq,
                             at::Tensor& dk, at::Tensor& dv);

}  // namespace longhaul::ops::library
