#pragma once

#include <ATen/core/Tensor.h>

#include <string>

#include "longhaul/ops/attention/attention.h"

namespace longhaul::ops::library {

// Attention through LibTorch's own flash kernels (Dao, "FlashAttention-2"), where a
// device has them, and where they are there and do it through those of cuDNN
// (cudnn_attention.h): bf16 and fp16, head dims that are multiples of 8 up to 256,
// grouped heads without copies of keys and values. What they cannot do stays with the
// composite form: dropout, documents whose bounds the host does not know, ends of
// documents beside them.

/// All keys at once, the queries' own being the last.
bool supports_attention(const at::Tensor& q, const at::Tensor& k,
                        const AttentionMask& mask);
/// A part of the keys: as above, and no documents.
bool supports_attention_part(const AttentionPart& part);
/// What attention runs through on this device, or why not through these kernels: for a
/// log and the numerics fingerprint.
std::string describe_attention(at::ScalarType type, at::Device device);

/// What a backward needs of its forward: the kernel's own log-sum-exp, whose shape is its
/// affair, and its two tensors of random state.
struct Attended {
  at::Tensor out;  ///< as q, contiguous
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

/// As ops::attention_part_forward and attention_part_backward.
void attention_part_forward(const AttentionPart& part, at::Tensor& out, at::Tensor& lse);
void attention_part_backward(const AttentionPart& part, const at::Tensor& dout,
                             const at::Tensor& out, const at::Tensor& lse, at::Tensor& dq,
                             at::Tensor& dk, at::Tensor& dv);

}  // namespace longhaul::ops::library
