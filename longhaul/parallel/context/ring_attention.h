#pragma once

#include <ATen/core/Tensor.h>

#include "longhaul/comm/communicator.h"
#include "longhaul/ops/attention/attention.h"

namespace longhaul::parallel {

/// ops::attention over sequences whose positions lie on the ranks of `group` as
/// ContextLayout says, by passing keys and values round a ring (Liu et al., "Ring
/// Attention with Blockwise Transformers"). q [B, S, Hq, D], k and v [B, S, Hkv, D]
/// of this rank's positions, rotated by their positions in the whole sequence; the mask's
/// document_start and document_end hold indices of the whole sequence. Keys that no query
/// of a rank sees by its window travel like others and are not multiplied. Result as q.
/// Differentiable. Collective, forward and backward; `group` must outlive the graph, and
/// the backward runs on the thread that owns it.
///
/// While the queries meet the keys of one rank, those of the next are on their way.
/// Partial results are merged in fp32 by log-sum-exp, keys of rank r, r - 1, r - 2 ... in
/// this order. The backward sends keys and values round again, and after them the fp32
/// sums of their gradients, which go from rank r + 1 round to rank r and add up in this
/// order, r's own share last: the same bits in every run.
///
/// Bytes that each of N ranks sends, with n = B * S * Hkv * D elements of e bytes:
/// forward 2 (N - 1) n e, backward 2 (N - 1) n (e + 4).
/// Memory: the keys and values of two ranks, and in the backward up to four fp32
/// sets of their gradients.
at::Tensor ring_attention(comm::Communicator& group, const at::Tensor& q,
                          const at::Tensor& k, const at::Tensor& v,
                          const ops::AttentionMask& mask, bool fused);

}  // namespace longhaul::parallel
