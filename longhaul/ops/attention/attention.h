#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "longhaul/ops/attention_mask.h"

namespace longhaul::ops {

/// Grouped-query attention, softmax(scale q k^T) v, with the softmax in fp32.
/// q [B, S, Hq, D], k and v [B, P + S, Hkv, D]; Hq is a multiple of Hkv and consecutive
/// query heads share a key head; query i sees keys start(i) <= j <= P + i with
/// j > P + i - window, where P is the number of cached positions, or start(i) <= j <
/// end(i); one that sees none gets the result 0. Result [B, S, Hq, D] contiguous.
/// Works in blocks of queries, each with the keys that some query of it may see by its
/// position: no S x S matrix ever exists (Dao et al., "FlashAttention").
at::Tensor attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                     const AttentionMask& mask, bool fused);

// ---- Keys that come in parts (on several ranks: parallel/context). No graph is made.

/// Whether the `lse` of fused parts of these queries may be some rows of a longer one,
/// and `out`, `lse` and `dq` undefined for a first part that each query sees keys of,
/// which makes them; elsewhere they are there and contiguous. The kernels of a library
/// take them so, where a mask has neither documents nor dropout.
bool attention_part_takes_rows(const at::Tensor& q, const AttentionMask& mask);

/// Takes the part's keys into the softmax: `out` [B, S, Hq, D] fp32 and `lse` [B, Hq, S]
/// fp32 hold the result for the parts before (at first 0 and minus infinity,
/// which is also the result of a query that sees no key) and leave with this part merged
/// by log-sum-exp: out = out e^(lse - new) + softmax(part) v e^(lse(part) - new). What is
/// dropped is in lse nevertheless.
void attention_part_forward(const AttentionPart& part, at::Tensor& out, at::Tensor& lse);

/// Adds to dq [B, S, Hq, D], dk and dv [B, K, Hkv, D], fp32. `out` (dtype of q) and `lse`
/// are those over all parts, so that exp(scores - lse) is the softmax over all keys.
void attention_part_backward(const AttentionPart& part, const at::Tensor& dout,
                             const at::Tensor& out, const at::Tensor& lse, at::Tensor& dq,
                             at::Tensor& dk, at::Tensor& dv);

}  // namespace longhaul::ops
