#pragma once

#include <ATen/core/Tensor.h>

#include "longhaul/ops/common/attention_mask.h"

namespace longhaul::ops {

/// Returns grouped-query attention, softmax(scale q k^T) v, with the softmax in fp32. `q`
/// is [B, S, Hq, D], `k` and `v` are [B, P + S, Hkv, D], where P is the number of cached
/// positions. Hq is a multiple of Hkv, and consecutive query heads share a key head. The
/// result [B, S, Hq, D] is contiguous.
///
/// Query i sees keys j with start(i) <= j <= P + i and j > P + i - window. If the mask
/// has ends, query i sees keys j with start(i) <= j < end(i) instead. A query that sees
/// no key gets the result 0.
///
/// The work is done in blocks of queries, each with the keys that some query of the block
/// may see by its position: no S x S matrix ever exists (Dao et al., "FlashAttention").
at::Tensor attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                     const AttentionMask& mask, bool fused);

// ---- Keys that come in parts, because several ranks hold them (parallel/context). No
// graph is made.

/// Returns whether a library's kernels compute fused parts of these queries, for which
/// the mask must have neither documents nor dropout. The `lse` of such parts may be some
/// rows of a longer tensor. `out`, `lse` and `dq` may be undefined for a first part of
/// which each query sees keys: the first part then makes these tensors. Otherwise the
/// three tensors must be defined and contiguous.
bool attention_part_takes_rows(const at::Tensor& q, const AttentionMask& mask);

/// Merges the keys of the part into the softmax. `out` [B, S, Hq, D] and `lse` [B, Hq,
/// S], both fp32, hold the result for the parts before. At first the two hold 0 and minus
/// infinity, which is also the result of a query that sees no key. Afterwards they hold
/// the result with this part, merged by log-sum-exp:
///   out = out e^(lse - new) + softmax(part) v e^(lse(part) - new).
/// lse counts dropped probabilities too.
void attention_part_forward(const AttentionPart& part, at::Tensor& out, at::Tensor& lse);

/// Adds the gradients through the part to dq [B, S, Hq, D] and to dk and dv [B, K, Hkv,
/// D], all fp32. `out`, of the dtype of q, and `lse` are the results over all parts, so
/// that exp(scores - lse) is the softmax over all keys.
void attention_part_backward(const AttentionPart& part, const at::Tensor& dout,
                             const at::Tensor& out, const at::Tensor& lse, at::Tensor& dq,
                             at::Tensor& dk, at::Tensor& dv);

}  // namespace longhaul::ops
