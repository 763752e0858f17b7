#pragma once

#include <ATen/core/Tensor.h>

#include <string>

#include "longhaul/ops/common/attention_problem.h"

namespace longhaul::ops {

/// Returns grouped-query attention, softmax(scale q k^T) v, with the softmax in fp32. If
/// the problem has a cap (AttentionScores), the scores are capped before the softmax. `q`
/// is [B, S, Hq, D], `kept` are keys k [B, P + S, Hkv, D] and values v [B, P + S, Hkv,
/// V], where P is the number of cached positions. Hq is a multiple of Hkv, and
/// consecutive query heads share a key head. The result [B, S, Hq, V] is contiguous.
///
/// Query i sees keys j with start(i) <= j <= P + i and j > P + i - window. If the problem
/// has ends, query i sees keys j with start(i) <= j < end(i) instead. A query that sees
/// no key gets the result 0.
///
/// The work is done in blocks of queries, each with the keys that the positions let some
/// query of the block see. No S x S matrix ever exists (Dao et al., "FlashAttention").
at::Tensor attention(const at::Tensor& q, const KeptPositions& kept,
                     const AttentionProblem& problem, bool fused);

/// Returns what computes attention of these scores on this device, with dropout of this
/// probability, for the log and the numerics fingerprint. If kernels exist for the dtype
/// but not for this device, the text says why.
std::string describe_attention(const AttentionScores& scores, int64_t head_dim,
                               double dropout, at::ScalarType type, at::Device device);

// ---- Keys that come in parts, because several ranks hold them (parallel/context). These
// functions make no autograd graph.

/// Returns whether a library's kernels compute parts like this one. The `lse` of such a
/// part may be some rows of a longer tensor. `out`, `lse` and `dq` may be undefined for a
/// first part of which each query sees keys: the first part then makes these tensors.
/// Otherwise the three tensors must be defined and contiguous.
bool attention_part_takes_rows(const AttentionPart& part);

/// Merges the keys of the part into the softmax. `out` [B, S, Hq, V] and `lse` [B, Hq,
/// S], both fp32, hold the result for the parts before. At first the two hold 0 and minus
/// infinity, which is also the result of a query that sees no key. Afterwards they hold
/// the result with this part, merged by log-sum-exp:
///   out = out e^(lse - new) + softmax(part) v e^(lse(part) - new).
/// lse counts dropped probabilities too.
void attention_part_forward(const AttentionPart& part, at::Tensor& out, at::Tensor& lse);

/// Adds the gradients through the part to dq [B, S, Hq, D] and to `gradients`, the
/// gradients of the tensors in part.kept; all are fp32. `out`, of the dtype of q, and
/// `lse` are the results over all parts, so that exp(scores - lse) is the softmax over
/// all keys.
void attention_part_backward(const AttentionPart& part, const at::Tensor& dout,
                             const at::Tensor& out, const at::Tensor& lse, at::Tensor& dq,
                             const KeptPositions& gradients);

}  // namespace longhaul::ops
